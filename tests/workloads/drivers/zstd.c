// zstd KIBIBYTES: compresses text-like data at several levels in blocks, prints a checksum of what came out,
// decompresses it and compares.
#include "zstd.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16384 };

static void fill(char *text, size_t size) {
    static const char *const words[] = {"alpha ", "beta ", "gamma ", "delta\n", "epsilon ", "zeta ", "eta, ", "theta "};
    uint64_t random = 88172645463325252u;
    for (size_t at = 0; at < size;) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        if (random % 5 == 0) {
            text[at++] = (char)(random >> 8);
            continue;
        }
        const char *word = words[random >> 8 & 7];
        size_t length = strlen(word);
        if (length > size - at) length = size - at;
        memcpy(text + at, word, length);
        at += length;
    }
}

static size_t checked(size_t result) {
    if (!ZSTD_isError(result)) return result;
    fprintf(stderr, "zstd: %s\n", ZSTD_getErrorName(result));
    exit(1);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    size_t size = (size_t)atoi(argv[1]) * 1024;
    static const int levels[] = {-5, 1, 3, 6, 12, 19};
    static char packed[2 * BLOCK], back[BLOCK];
    char *text = calloc(1, size + 1);
    if (!text || ZSTD_compressBound(BLOCK) > sizeof packed) return 1;
    fill(text, size);
    for (size_t level = 0; level < sizeof levels / sizeof *levels; level++) {
        uint64_t sum = 0;
        size_t total = 0;
        for (size_t at = 0; at < size; at += BLOCK) {
            size_t length = size - at < BLOCK ? size - at : BLOCK;
            size_t packed_length = checked(ZSTD_compress(packed, sizeof packed, text + at, length, levels[level]));
            for (size_t i = 0; i < packed_length; i++) sum = (sum ^ (unsigned char)packed[i]) * 1099511628211u;
            total += packed_length;
            if (checked(ZSTD_decompress(back, BLOCK, packed, packed_length)) != length) return 1;
            if (memcmp(back, text + at, length)) return 1;
        }
        printf("level %d: %zu bytes, %016llx\n", levels[level], total, (unsigned long long)sum);
    }
    free(text);
    return 0;
}
