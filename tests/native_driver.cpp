// Trains one run that Python wrote to a file: the native library without Python, for machines that
// are emulated. Usage: driver LEVEL STEPS FILE; the file is written back with the new state.
//
// The file holds the record (struct Run) and then what each of its pointers points at: the number
// of bytes and the bytes, in the order of the record.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../src/headcount/training/engines/native/run.h"

extern "C" {
int headcount_levels();
const char* headcount_level_name(int level);
int64_t headcount_bytes(int level, const Run* run);
int headcount_run(int level, Run* runs, int count, int64_t steps, int threads, char* scratch,
                  int64_t bytes, volatile int32_t* stop);
}

int main(int, char** words) {
    Run run;
    const size_t pointers = offsetof(Run, context_count) / sizeof(char*);
    std::vector<std::vector<char>> parts(pointers);
    FILE* file = fopen(words[3], "rb");
    bool whole = fread(&run, sizeof run, 1, file) == 1;
    for (size_t n = 0; n < pointers; n++) {
        int64_t size = 0;
        whole &= fread(&size, sizeof size, 1, file) == 1;
        parts[n].resize(size);
        whole &= fread(parts[n].data(), 1, size, file) == size_t(size);
        char* at = size ? parts[n].data() : nullptr;
        memcpy(reinterpret_cast<char*>(&run) + n * sizeof at, &at, sizeof at);
    }
    fclose(file);
    int level = 0;
    while (level < headcount_levels() && strcmp(headcount_level_name(level), words[1])) level++;
    if (!whole || level == headcount_levels()) return 2;
    std::vector<char> scratch(headcount_bytes(level, &run));
    volatile int32_t stop = 0;
    const int code = headcount_run(level, &run, 1, atoll(words[2]), 1, scratch.data(),
                                   scratch.size(), &stop);
    file = fopen(words[3], "wb");
    fwrite(&run, sizeof run, 1, file);
    for (const auto& part : parts) fwrite(part.data(), 1, part.size(), file);
    fclose(file);
    return code;
}
