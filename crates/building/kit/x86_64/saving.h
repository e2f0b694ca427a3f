#include <cpuid.h>

// How the registers are saved around handlers, which may change any of them. Not tiles, protection
// keys and shadow stacks: these aren't what compilers use on their own. At entries and exits no
// more than vectors is in use; within a function, x87 may be, too. There, and where there is more
// than we know, xsave is used, which takes ten times as long.
// save_mask: the register state that xsave saves, or 0: fxsave. save_vectors: 0 xmm, 1 ymm, 2 zmm
// and masks, 4 by xsave. knows_use: not 0 if xgetbv tells which vectors are in use.
static void prepare_saving(struct object* object) {
    const uint64_t legacy = 0x7, wide = 0xe0, more_general = 1 << 19;
    const uint32_t xsave_is_on = 1 << 27, has_use = 1 << 2, has_avx = 1 << 28, has_masks_of_64 = 1 << 30;
    uint32_t a, b, c, d, low, high;
    object->save_size = 64 + 512;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & xsave_is_on)) return;
    int is_avx = (c & has_avx) != 0;
    if (!__get_cpuid_count(13, 1, &a, &b, &c, &d)) return;
    int knows_use = (a & has_use) != 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    uint64_t enabled = (uint64_t)high << 32 | low, mask = enabled & (legacy | wide | more_general);
    uint64_t size = 512 + 64;
    for (uint32_t component = 2; component < 64; component++)
        if (mask >> component & 1) {
            __get_cpuid_count(13, component, &a, &b, &c, &d);
            if ((uint64_t)b + a > size) size = (uint64_t)b + a;
        }
    // The area of our own is smaller than xsave's.
    object->save_size = 64 + size;
    int has_wide = (enabled & wide) == wide;
    int has_masks = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & has_masks_of_64);
    if ((enabled & more_general) || (has_wide && !has_masks))
        object->save_vectors = 4;
    else if (has_wide)
        object->save_vectors = 2;
    else if (is_avx && (enabled & legacy) == legacy)
        object->save_vectors = 1;
    object->knows_use = knows_use && object->save_vectors;
    object->save_mask = mask;
}
