// Preloaded: applies the plan in PLAN to the module that it names, before main, with hooks that count.
// The counts are in the file COUNTS: 8 bytes for each byte of the region, by what a hook returns to.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct head {
    char module[256]; // the end of its path; empty: the executable
    int64_t region;
    uint64_t reserved, code, patches, islands, hooks[3];
};
struct patch { uint64_t at, length; uint8_t old[256], new[256]; };
struct island { int64_t at; uint8_t bytes[8]; };
struct module { uint64_t base, start[8], end[8]; int found; };

static void fail(const char *what) {
    fprintf(stderr, "apply: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    struct head *head = ((void **)data)[0];
    struct module *module = ((void **)data)[1];
    size_t have = strlen(info->dlpi_name), want = strlen(head->module);
    (void)size;
    if (want ? have < want || strcmp(info->dlpi_name + have - want, head->module) : have != 0) return 0;
    module->base = info->dlpi_addr;
    for (int k = 0; k < info->dlpi_phnum; k++) {
        const ElfW(Phdr) *s = &info->dlpi_phdr[k];
        if (s->p_type != PT_LOAD || !(s->p_flags & PF_X) || module->found == 8) continue;
        module->start[module->found] = (info->dlpi_addr + s->p_vaddr) & ~4095ul;
        module->end[module->found++] = (info->dlpi_addr + s->p_vaddr + s->p_memsz + 4095) & ~4095ul;
    }
    return 1;
}

static void *map(uint64_t at, uint64_t size) {
    void *m = mmap((void *)at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (m != (void *)at) fail("mmap");
    return m;
}

__attribute__((constructor)) static void apply(void) {
    const char *file = getenv("PLAN"), *counts = getenv("COUNTS");
    if (!file || !counts) return;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(file);
    uint8_t *plan = mmap(0, lseek(fd, 0, SEEK_END), PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    struct head *head = (void *)plan;
    struct patch *patches = (void *)(plan + sizeof *head);
    struct island *islands = (void *)(patches + head->patches);
    uint8_t *code = (void *)(islands + head->islands);
    struct module module = {0};
    dl_iterate_phdr(look, (void *[]){head, &module});
    if (!module.found) return;
    unsetenv("PLAN"); // children are other programs
    uint64_t size = (head->reserved + head->code + 4095) & ~4095ul;
    fd = open(counts, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 8 * size)) fail(counts);
    uint64_t *table = mmap(0, 8 * size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    uint8_t *region = map(module.base + head->region, size);
    for (int k = 0; k < 3; k++) {
        // push rax; push rcx; mov rax, [rsp+16]; mov rcx, region; sub rax, rcx; mov rcx, table;
        // lock inc qword [rcx+rax*8]; pop rcx; pop rax; ret
        uint8_t hook[] = {0x50, 0x51, 0x48, 0x8b, 0x44, 0x24, 0x10, 0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0, 0x48, 0x29, 0xc8, 0x48, 0xb9,
            0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x48, 0xff, 0x04, 0xc1, 0x59, 0x58, 0xc3};
        memcpy(hook + 9, &region, 8);
        memcpy(hook + 22, &table, 8);
        memcpy(region + head->hooks[k], hook, sizeof hook);
    }
    memcpy(region + head->reserved, code, head->code);
    if (mprotect(region, size, PROT_READ | PROT_EXEC)) fail("mprotect");
    for (uint64_t k = 0; k < head->islands; k++) {
        uint64_t at = module.base + islands[k].at, page = at & ~4095ul;
        void *m = mmap((void *)page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (m != (void *)page && errno != EEXIST) fail("island");
        mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
        memcpy((void *)at, islands[k].bytes, 5);
        mprotect((void *)page, 4096, PROT_READ | PROT_EXEC);
    }
    for (int k = 0; k < module.found; k++)
        if (mprotect((void *)module.start[k], module.end[k] - module.start[k], PROT_READ | PROT_WRITE | PROT_EXEC)) fail("mprotect");
    for (uint64_t k = 0; k < head->patches; k++) {
        uint8_t *to = (void *)(module.base + patches[k].at);
        if (memcmp(to, patches[k].old, patches[k].length)) fail("old bytes differ");
        for (uint64_t i = 0; i < patches[k].length; i++) to[i] = patches[k].new[i];
    }
    for (int k = 0; k < module.found; k++) mprotect((void *)module.start[k], module.end[k] - module.start[k], PROT_READ | PROT_EXEC);
}
