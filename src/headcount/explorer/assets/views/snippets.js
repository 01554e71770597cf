/** The command and the Python lines that do what a view shows. */

import { chosenPair, itemsNow } from "./problems.js";
import { constructedHeads, keyHeads, plannedItems, state } from "./state.js";

const SAVED = "# The view “The problem” saves graph.csv.\n";

function training(items, dModel, heads, keyDim, groups) {
  const own = state.graph === "antonyms" && state.view !== "transition";
  const shared = groups < heads ? ` --kv-heads ${groups}` : "";
  const graph = own ? "--graph graph.csv" : `--items ${items}`;
  const command = `headcount train ${graph} --d-model ${dModel} --heads ${heads} `
    + `--key-dim ${keyDim}${shared} --seeds 1 --first-seed ${state.seed}`;
  const kv = groups < heads ? `, kv_heads=${groups}` : "";
  const sizes = `d_model=${dModel}, heads=${heads}, key_dim=${keyDim}${kv}, seed=${state.seed}`;
  const spec = own ? `hc.RunSpec.on(hc.read_graph("graph.csv"), ${sizes})`
    : `hc.RunSpec(items=${items}, ${sizes})`;
  return {
    command,
    python: `import headcount as hc\n\n${own ? SAVED : ""}spec = ${spec}\n`
      + "[run] = hc.train([spec])\nprint(run.value, run.steps)",
  };
}

function planning() {
  const { pd, pr, ps } = state;
  const pm = plannedItems();
  const edges = pr > 1 ? ` --degree ${pr}` : "";
  return {
    command: `headcount plan --items ${pm}${edges} --d-model ${pd} --steps ${ps}`,
    python: "import headcount as hc\n\n"
      + `answer = hc.plan(items=${pm}, edges=${pm * pr}, d_model=${pd}, steps=${ps})\n`
      + "print(answer.advice)",
  };
}

function noise() {
  const { im, id, ik, seed } = state;
  const heads = constructedHeads();
  const [source, target] = chosenPair();
  return {
    command: `headcount noise --items ${im} --d-model ${id} --heads ${heads} --key-dim ${ik} `
      + `--seed ${seed} --pair ${source} ${target}`,
    python: "import headcount as hc\n\n"
      + `found = hc.measure_noise(items=${im}, d_model=${id}, heads=${heads}, key_dim=${ik},\n`
      + `                         seed=${seed}, pair=(${source}, ${target}))\n`
      + "print(found.pair)  # the parts of this score\n"
      + "print(found.parts)  # the sizes of all, in root mean square",
  };
}

/** For the view that is shown. */
export function snippets() {
  switch (state.view) {
    case "interference": return noise();
    case "transition": return training(state.tm, state.td, state.th, state.td, state.th);
    case "plan": return planning();
    case "weights": return {
      command: "headcount verify weights.safetensors graph.csv table.npy",
      python: "import headcount as hc\n\n"
        + 'weights = hc.load_weights("weights.safetensors")\n'
        + 'graph, table = hc.read_problem("graph.csv", "table.npy")\n'
        + "print(hc.verify(weights, graph, table))",
    };
    default: return training(itemsNow(), state.d, state.h, state.k, keyHeads());
  }
}
