// Counts calls per function and thread. See README.md; ORACLE_MAIN is the part for executables.

#define _GNU_SOURCE
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum { SLOTS = 1 << 17, MODULES_MAX = 1024 };

// One listed site: its address and its function's.
struct site { uintptr_t site, function; };

struct module {
    uintptr_t bias, start, end;
    char name[256];
    struct site *sites;
    size_t site_count;
};

struct runtime {
    void (*count)(uintptr_t address, int is_exit);
    void (*add_module)(const struct module *module);
};

EXPORTED extern const struct runtime everycall_runtime_v1
#ifndef ORACLE_MAIN
    __attribute__((weak))
#endif
    ;

static void fail(const char *sentence, uintptr_t address) {
    fprintf(stderr, "oracle: %s at %#lx\n", sentence, (unsigned long)address);
    _exit(70);
}

// ---- counting, in the executable --------------------------------------------------------------------------------

#ifdef ORACLE_MAIN

struct slot { uintptr_t address; uint64_t entries, exits; };
struct table { struct table *next; long tid; struct slot slots[SLOTS]; };

static struct table *tables;
static __thread struct table *own_table;
static struct module modules[MODULES_MAX];
static size_t module_count;

static void *zeroed(size_t bytes) {
    void *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("out of memory", bytes);
    return memory;
}

static struct table *table_of_thread(void) {
    struct table *table = own_table;
    if (table) return table;
    table = zeroed(sizeof *table);
    table->tid = syscall(SYS_gettid);
    // A signal handler may have made the table meanwhile; then this one stays unused.
    struct table *none = 0;
    if (!__atomic_compare_exchange_n(&own_table, &none, table, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return none;
    table->next = __atomic_load_n(&tables, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&tables, &table->next, table, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
    return table;
}

static void count(uintptr_t address, int is_exit) {
    struct table *table = table_of_thread();
    size_t at = (address * 0x9e3779b97f4a7c15u) >> 47;
    for (size_t probe = 0; probe < SLOTS; probe++, at = (at + 1) % SLOTS) {
        struct slot *slot = &table->slots[at];
        uintptr_t owner = __atomic_load_n(&slot->address, __ATOMIC_RELAXED);
        // Atomic for signal handlers of this thread; no other thread writes here.
        if (owner == 0 && !__atomic_compare_exchange_n(&slot->address, &owner, address, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
            && owner != address) continue;
        if (owner != 0 && owner != address) continue;
        __atomic_fetch_add(is_exit ? &slot->exits : &slot->entries, 1, __ATOMIC_RELAXED);
        return;
    }
    fail("more functions than slots", address);
}

static void add_module(const struct module *module) {
    size_t index = __atomic_fetch_add(&module_count, 1, __ATOMIC_RELAXED);
    if (index >= MODULES_MAX) fail("more modules than slots", index);
    modules[index] = *module;
}

EXPORTED const struct runtime everycall_runtime_v1 = { count, add_module };

static const struct module *module_of(uintptr_t address) {
    for (size_t i = 0; i < module_count; i++)
        if (address >= modules[i].start && address < modules[i].end) return &modules[i];
    return 0;
}

static int by_site(const void *a, const void *b) {
    uintptr_t x = ((const struct site *)a)->site, y = ((const struct site *)b)->site;
    return (x > y) - (x < y);
}

// A site's function; an address that is no site stands for itself.
static uintptr_t function_of(const struct module *module, uintptr_t address) {
    struct site key = { address, 0 };
    if (!module->site_count) return address;
    struct site *found = bsearch(&key, module->sites, module->site_count, sizeof key, by_site);
    return found ? found->function : address;
}

__attribute__((destructor(101))) static void write_counts(void) {
    const char *name = getenv("ORACLE_OUT");
    FILE *out = name ? fopen(name, "w") : 0;
    if (!out) return;
    for (size_t i = 0; i < module_count; i++)
        if (modules[i].site_count) qsort(modules[i].sites, modules[i].site_count, sizeof(struct site), by_site);
    for (struct table *table = tables; table; table = table->next)
        for (size_t i = 0; i < SLOTS; i++) {
            struct slot *slot = &table->slots[i];
            if (!slot->address) continue;
            const struct module *module = module_of(slot->address);
            // `__cyg_profile` hooks of an inlined call get the function proper, which may lie in an untraced library.
            const char *name = module ? module->name : "?";
            uintptr_t address = module ? function_of(module, slot->address) - module->bias : slot->address;
            fprintf(out, "%ld %s %lx %lu %lu\n", table->tid, name, (unsigned long)address,
                    (unsigned long)slot->entries, (unsigned long)slot->exits);
        }
    if (fclose(out)) fail("the counts couldn't be written", 0);
}

#endif

// ---- hooks, in every object -------------------------------------------------------------------------------------

void oracle_hook(uintptr_t behind_call, int is_exit);
void __cyg_profile_func_enter(void *function, void *call_site);
void __cyg_profile_func_exit(void *function, void *call_site);
void oracle_site_entry(void);
void oracle_site_exit(void);

static int has_runtime(void) {
    const struct runtime *volatile runtime = &everycall_runtime_v1;
    return runtime != 0;
}

// The hook call is 5 bytes long at sites; elsewhere any address inside the function will do.
void oracle_hook(uintptr_t behind_call, int is_exit) {
    if (has_runtime()) everycall_runtime_v1.count(behind_call - 5, is_exit);
}

void __cyg_profile_func_enter(void *function, void *call_site) {
    (void)call_site;
    if (has_runtime()) everycall_runtime_v1.count((uintptr_t)function, 0);
}

void __cyg_profile_func_exit(void *function, void *call_site) {
    (void)call_site;
    if (has_runtime()) everycall_runtime_v1.count((uintptr_t)function, 1);
}

// ---- sites ------------------------------------------------------------------------------------------------------

struct nop_site { int32_t site, function; uint32_t kind; };
struct sled { int64_t sled, function; uint8_t kind, always, version, padding[13]; };

#define LINKER_MADE extern __attribute__((weak, visibility("hidden")))
LINKER_MADE struct nop_site __start_everycall_sites[], __stop_everycall_sites[];
LINKER_MADE struct sled __start_xray_instr_map[], __stop_xray_instr_map[];
LINKER_MADE const Elf64_Ehdr __ehdr_start;

static void put_call(uint8_t *at, int is_exit) {
    int64_t distance = (int64_t)(is_exit ? (uintptr_t)oracle_site_exit : (uintptr_t)oracle_site_entry) - (int64_t)(at + 5);
    if (distance != (int32_t)distance) fail("a site out of reach", (uintptr_t)at);
    int32_t relative = (int32_t)distance;
    memcpy(at + 1, &relative, 4);
    at[0] = 0xe8;
}

static void switch_nop_on(const struct nop_site *site, struct site *listed) {
    static const uint8_t nop[5] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
    // Before a ret, a ret of the site's own.
    static const uint8_t ret[6] = { 0xc3, 0x0f, 0x1f, 0x40, 0x00, 0xc3 };
    uint8_t *at = (uint8_t *)&site->site + site->site;
    if (site->kind == 3 ? memcmp(at, ret, 6) : memcmp(at, nop, 5)) fail("a site without its bytes", (uintptr_t)at);
    // That one is switched by its first byte.
    if (site->kind != 3 && ((uintptr_t)at & 7) > 3) fail("a site across two words", (uintptr_t)at);
    if (site->kind > 3) fail("a site of unknown kind", (uintptr_t)at);
    put_call(at, site->kind != 0);
    *listed = (struct site){ (uintptr_t)at, (uintptr_t)&site->function + (intptr_t)site->function };
}

static void switch_sled_on(const struct sled *sled, struct site *listed) {
    uint8_t *at = (uint8_t *)&sled->sled + sled->sled;
    int returns = sled->kind == 1;
    if (sled->version != 2) fail("a sled of unknown version", (uintptr_t)at);
    if (returns ? at[0] != 0xc3 : (at[0] != 0xeb || at[1] != 9)) fail("a sled without its bytes", (uintptr_t)at);
    put_call(at, sled->kind == 1 || sled->kind == 2);
    // Behind the call: return from the function, or jump over the sled's remaining 4 bytes.
    if (returns) at[5] = 0xc3;
    else memcpy(at + 5, "\xeb\x04", 2);
    *listed = (struct site){ (uintptr_t)at, (uintptr_t)&sled->function + (intptr_t)sled->function };
}

// Makes the object's code writable and executable, or executable only.
static void protect_code(uintptr_t bias, int writable) {
    const Elf64_Phdr *header = (const void *)((const char *)&__ehdr_start + __ehdr_start.e_phoff);
    for (int i = 0; i < __ehdr_start.e_phnum; i++)
        if (header[i].p_type == PT_LOAD && header[i].p_flags & PF_X) {
            uintptr_t start = (bias + header[i].p_vaddr) & ~4095ul;
            uintptr_t end = bias + header[i].p_vaddr + header[i].p_memsz;
            if (mprotect((void *)start, end - start, PROT_READ | PROT_EXEC | (writable ? PROT_WRITE : 0)))
                fail("code that can't be made writable", start);
        }
}

static void fill_extent(struct module *module) {
    const Elf64_Phdr *header = (const void *)((const char *)&__ehdr_start + __ehdr_start.e_phoff);
    module->bias = __ehdr_start.e_type == ET_DYN ? (uintptr_t)&__ehdr_start : 0;
    module->start = (uintptr_t)&__ehdr_start;
    for (int i = 0; i < __ehdr_start.e_phnum; i++)
        if (header[i].p_type == PT_LOAD) module->end = module->bias + header[i].p_vaddr + header[i].p_memsz;
}

static void fill_name(struct module *module) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4352], path[4096];
    unsigned long start, end;
    strcpy(module->name, "?");
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %4095[^\n]", &start, &end, path) == 3 && module->start >= start && module->start < end) {
            const char *slash = strrchr(path, '/');
            snprintf(module->name, sizeof module->name, "%.255s", slash ? slash + 1 : path);
        }
    if (maps) fclose(maps);
}

static void start_module(void) {
    static int started;
    if (started || !has_runtime()) return;
    started = 1;
    struct module module = { 0 };
    fill_extent(&module);
    fill_name(&module);
    size_t nops = __stop_everycall_sites - __start_everycall_sites;
    size_t sleds = __stop_xray_instr_map - __start_xray_instr_map;
    if (nops + sleds) {
        module.sites = calloc(nops + sleds, sizeof *module.sites);
        if (!module.sites) fail("out of memory", nops + sleds);
        protect_code(module.bias, 1);
        for (size_t i = 0; i < nops; i++) switch_nop_on(&__start_everycall_sites[i], &module.sites[module.site_count++]);
        for (size_t i = 0; i < sleds; i++) switch_sled_on(&__start_xray_instr_map[i], &module.sites[module.site_count++]);
        protect_code(module.bias, 0);
    }
    everycall_runtime_v1.add_module(&module);
}

// Executables' preinit functions run before every constructor; shared objects have none.
#ifdef ORACLE_MAIN
__attribute__((section(".preinit_array"), used)) static void (*start_first)(void) = start_module;
#else
__attribute__((constructor(101))) static void start_early(void) { start_module(); }
#endif
