// Draw charts when they come into view, and the rest when the browser is idle; filter them; fit
// them to the page.
(() => {
  "use strict";
  const NARROW = 640; // pixels: below this, one column and legends underneath
  const COMPOSED = ["layer", "concat", "hconcat", "vconcat"];
  const OPTIONS = { renderer: "svg", actions: false, logLevel: 1 /* errors */ };
  const form = document.querySelector(".filters");
  const selects = [...form.querySelectorAll("select")];
  const charts = [...document.querySelectorAll(".chart")].map((box) => ({
    box,
    note: box.parentElement.querySelector(".note"),
    spec: JSON.parse(document.getElementById(`spec-${box.dataset.id}`).textContent),
    view: null,
    room: 0,
    drawing: null,
  }));

  // --- Fitting a chart to the page ---------------------------------------------------------------

  /** The text in lines that fit into `room` pixels at a font size; a list, line by line. */
  function wrapped(text, room, size = 11) {
    if (Array.isArray(text)) return text.flatMap((line) => wrapped(line, room, size));
    const length = Math.floor(room / (size * 0.62));
    if (typeof text !== "string" || text.length <= length) return text;
    const lines = [""];
    for (const word of text.split(" ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + 1 + word.length > length) lines.push(word);
      else lines[lines.length - 1] = last ? `${last} ${word}` : word;
    }
    return lines;
  }

  function withTitle(title, room) {
    if (typeof title === "string" || Array.isArray(title)) return wrapped(title, room, 14);
    const text = wrapped(title.text, room, title.fontSize ?? 14);
    const subtitle = wrapped(title.subtitle, room, title.subtitleFontSize ?? 12);
    return { ...title, text, subtitle };
  }

  /**
   * A legend above or below the plot, no wider than the page; long names of `domain` are broken
   * into lines.
   */
  function withLegend(legend, domain, fit) {
    const orient = legend.orient === "top" ? "top" : "bottom";
    const direction = legend.direction ?? "horizontal";
    const most = Math.min(legend.columns || Infinity, fit.entries);
    const columns = direction === "vertical" ? 1 : most;
    const out = { ...legend, orient, direction, columns };
    if (legend.title) out.title = wrapped(legend.title, fit.room);
    if (direction === "vertical" && Array.isArray(domain) && !legend.labelExpr) {
      const broken = (name) => wrapped(String(name), fit.plot - 30);
      const lines = Object.fromEntries(domain.map((name) => [name, broken(name)]));
      out.labelExpr = `(${JSON.stringify(lines)})[datum.label]`;
    }
    return out;
  }

  /** The titles of x axes broken into lines, and legends that fit. */
  function withEncoding(encoding, fit) {
    const out = {};
    for (const [channel, value] of Object.entries(encoding)) {
      const given = Array.isArray(value) ? value : { ...value };
      if (channel === "x" && given.title) given.title = wrapped(given.title, fit.plot);
      if (channel === "x" && given.axis?.title) {
        given.axis = { ...given.axis, title: wrapped(given.axis.title, fit.plot) };
      }
      if (given.legend) given.legend = withLegend(given.legend, given.scale?.domain, fit);
      out[channel] = given;
    }
    return out;
  }

  /** The charts that the spec is composed of. */
  const partsOf = (spec) =>
    [spec.spec, ...COMPOSED.flatMap((key) => spec[key] ?? [])].filter(Boolean);

  /** How many plots the spec sets side by side at most. */
  function columnsOf(spec) {
    const unbounded = spec.facet && !spec.facet.row;
    const own = spec.hconcat?.length ?? spec.columns ?? (unbounded ? Infinity : 1);
    return Math.max(own, ...partsOf(spec).map(columnsOf));
  }

  function widestOf(spec) {
    const own = typeof spec.width === "number" ? spec.width : 0;
    return Math.max(own, ...partsOf(spec).map(widestOf));
  }

  /** On a narrow page a plot takes the room there is, unless it is a small one beside others. */
  const widthOf = (width, fit) =>
    fit.narrow && width >= 150 ? fit.plot : Math.min(width, fit.plot);

  /** A grid of plots in one column: all of its first row, then all of the next. */
  function inOneColumn({ facet, spec, columns, resolve, ...rest }) {
    const onlyRow = (value) => ({
      title: { text: value, anchor: "start" },
      transform: [{ filter: { field: facet.row.field, equal: value } }],
      facet: facet.column,
      columns: 1,
      spec,
      resolve,
    });
    return { ...rest, vconcat: facet.row.sort.map(onlyRow), spacing: 30 };
  }

  /** The chart with at most `fit.columns` plots side by side, none wider than `fit.plot` pixels. */
  function fitted(spec, fit) {
    const isGrid = spec.facet?.column && Array.isArray(spec.facet.row?.sort);
    if (isGrid && fit.columns === 1) return fitted(inOneColumn(spec), fit);
    const out = { ...spec };
    if (typeof spec.width === "number") out.width = widthOf(spec.width, fit);
    if (spec.title) out.title = withTitle(spec.title, fit.room);
    if (fit.narrow && spec.encoding) out.encoding = withEncoding(spec.encoding, fit);
    if (spec.columns || spec.facet) out.columns = Math.min(spec.columns ?? Infinity, fit.columns);
    if (spec.facet?.column && !spec.facet.row && fit.columns === 1) out.facet = spec.facet.column;
    else if (spec.facet?.column || spec.facet?.row || out.columns === Infinity) delete out.columns;
    for (const key of COMPOSED) {
      if (spec[key]) out[key] = spec[key].map((part) => fitted(part, fit));
    }
    if (spec.spec) out.spec = fitted(spec.spec, fit);
    if (spec.hconcat && fit.columns < spec.hconcat.length) {
      out.concat = out.hconcat;
      out.columns = fit.columns;
      delete out.hconcat;
    }
    return out;
  }

  function firstFit(room) {
    const narrow = room < NARROW;
    return {
      narrow,
      room,
      columns: narrow ? 1 : Infinity,
      plot: narrow ? room - 70 : Infinity,
      entries: Math.max(2, Math.floor(room / 75)),
    };
  }

  /** A tighter fit for a chart that came out `width` pixels wide; null when there is none. */
  function nextFit(spec, fit, width, room) {
    // At most 12: a facet without `columns` sets all in one row.
    const columns = Math.min(columnsOf(spec), fit.columns, 12);
    if (columns > 1) {
      const fewer = Math.min(columns - 1, Math.floor((columns * room) / width));
      return { ...fit, columns: Math.max(1, fewer) };
    }
    const plot = Math.floor(widthOf(widestOf(spec), fit) - (width - room) - 1);
    return plot >= 120 ? { ...fit, plot } : null;
  }

  function configured(spec, fit) {
    const out = fitted(spec, fit);
    if (!fit.narrow) return out;
    const below = { orient: "bottom", columns: fit.entries, direction: "horizontal" };
    const legend = { ...spec.config?.legend, ...below };
    return { ...out, config: { ...spec.config, legend } };
  }

  // --- Drawing -----------------------------------------------------------------------------------

  async function draw(chart) {
    chart.box.hidden = false; // a hidden box has no width
    const room = chart.box.clientWidth;
    let fit = firstFit(room);
    for (let tries = 0; fit && tries < 4; tries += 1) {
      chart.view?.finalize();
      const made = await vegaEmbed(chart.box, configured(chart.spec, fit), OPTIONS);
      chart.view = made.view;
      const width = Number.parseFloat(chart.box.querySelector("svg").getAttribute("width"));
      fit = width > room + 1 ? nextFit(chart.spec, fit, width, room) : null;
    }
    chart.room = room;
    await filter(chart);
    chart.box.removeAttribute("aria-busy");
  }

  function drawOnce(chart) {
    chart.drawing ??= draw(chart).catch((error) => {
      chart.box.textContent = `This chart could not be drawn: ${error.message}`;
      console.error(error);
    });
    return chart.drawing;
  }

  // --- Filters -----------------------------------------------------------------------------------

  const chosen = (some = selects) => some.filter((select) => select.value !== "");
  const inWords = (some) =>
    some.map((select) => `${select.dataset.label} = ${select.value}`).join(", ");
  const filtersOf = (chart) =>
    selects.filter((select) => chart.spec.params?.some((param) => param.name === select.name));

  /** Whether the chart has points that pass the filters. */
  function hasSome(chart, active) {
    const { data, datasets } = chart.spec;
    const rows = datasets[data?.name] ?? Object.values(datasets).flat();
    const passes = (row, select) => row[select.dataset.column] === Number(select.value);
    return rows.some((row) => active.every((select) => passes(row, select)));
  }

  /** Set the chart's signals, and say underneath what is shown. */
  async function filter(chart) {
    if (!chart.view) return;
    const own = filtersOf(chart);
    for (const select of own) {
      chart.view.signal(select.name, select.value === "" ? null : Number(select.value));
    }
    await chart.view.runAsync();
    const active = chosen(own);
    const words = inWords(active);
    const some = active.length === 0 || hasSome(chart, active);
    const text = some ? `Shown: ${words}.` : `No point here has ${words}.`;
    chart.box.hidden = !some; // instead of empty axes
    chart.note.textContent = active.length ? text : "These filters do not apply to this chart.";
    chart.note.hidden = chosen().length === 0;
  }

  function filterAll() {
    for (const select of selects) select.classList.toggle("chosen", select.value !== "");
    const showing = charts.filter((chart) => {
      const active = chosen(filtersOf(chart));
      return active.length && hasSome(chart, active);
    });
    const text = `${showing.length} of ${charts.length} charts have matching points`;
    form.querySelector("output").textContent = chosen().length ? text : "";
    return Promise.all(charts.map(filter));
  }

  /** Keep the filter in the address, so that a link opens the same view. */
  function remember() {
    const hash = chosen().map((select) => `${select.name}=${select.value}`).join("&");
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  }

  function recall() {
    const given = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    for (const select of selects) {
      const value = given.get(select.name) ?? "";
      if ([...select.options].some((option) => option.value === value)) select.value = value;
    }
  }

  form.addEventListener("change", () => { remember(); filterAll(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { remember(); filterAll(); }));
  window.addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return;
    recall();
    filterAll();
  });

  // --- When to draw ------------------------------------------------------------------------------

  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) drawOnce(charts.find((chart) => chart.box === entry.target));
      }
    },
    { rootMargin: "300px" },
  );

  const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 50));
  function drawRest() {
    const next = charts.find((chart) => !chart.drawing);
    if (next) drawOnce(next).then(() => idle(drawRest));
  }

  let resized = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      for (const chart of charts) {
        if (chart.room && Math.abs(chart.box.clientWidth - chart.room) > 20) {
          chart.drawing = null;
          drawOnce(chart);
        }
      }
    }, 300);
  });
  // Drawing does not wait for a timer or a file, so it ends before the browser lays out the pages.
  window.addEventListener("beforeprint", () => charts.forEach(drawOnce));

  form.hidden = false;
  recall();
  filterAll();
  for (const chart of charts) seen.observe(chart.box);
  idle(drawRest);
})();
