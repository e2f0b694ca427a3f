// lua_frames SCRIPT N: as lua.c, with Lua's functions as frames by id. Prints, by function, how
// many calls and resumptions it has reported.
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include <stdio.h>
#include <stdlib.h>

#include "everycall.h"

// The hook of docs/reference/frames.md begins here.
enum { SLOTS = 4096 };
static struct { const void *source; int line; unsigned calls; char name[80]; } functions[SLOTS];
static struct { size_t place; int id; } running[SLOTS];  // by their places in Lua's stacks
static lua_CFunction yields;

// The id of the function that `ar` is about: its place in a hash table by source and line.
EVERYCALL_EXCLUDE static int id_of(lua_State *lua, lua_Debug *ar) {
    unsigned slot = ((unsigned)(size_t)ar->source * 31 + (unsigned)ar->linedefined) % (SLOTS - 1) + 1;
    while (functions[slot].source && (functions[slot].source != ar->source || functions[slot].line != ar->linedefined))
        slot = slot % (SLOTS - 1) + 1;
    if (!functions[slot].source) {
        functions[slot].source = ar->source;
        functions[slot].line = ar->linedefined;
        lua_getinfo(lua, "n", ar);
        const char *name = ar->what[0] == 'm' ? "main chunk" : ar->name ? ar->name : "function";
        snprintf(functions[slot].name, sizeof functions[slot].name, "%s:%d", name, ar->linedefined);
        everycall_frame_name(slot, functions[slot].name, ar->short_src, ar->linedefined);
    }
    return slot;
}

EVERYCALL_EXCLUDE static void enter(int id) {
    functions[id].calls++;
    everycall_frame_enter(id);
}

// A coroutine goes on: its functions are entered again, outermost first.
EVERYCALL_EXCLUDE static void enter_again(lua_State *lua, int level) {
    lua_Debug ar;
    if (!lua_getstack(lua, level, &ar))
        return;
    enter_again(lua, level + 1);
    lua_getinfo(lua, "S", &ar);
    if (ar.what[0] != 'C')
        enter(id_of(lua, &ar));
}

EVERYCALL_EXCLUDE static void hook(lua_State *lua, lua_Debug *ar) {
    lua_getinfo(lua, "S", ar);
    int is_return = ar->event == LUA_HOOKRET;
    size_t place = (size_t)lua * 31 + (size_t)ar->i_ci;
    unsigned slot = (place ^ place >> 4) % SLOTS;
#ifdef LUA_HOOKTAILCALL
    int may_be_tail = ar->event == LUA_HOOKTAILCALL;
#else
    int may_be_tail = !is_return;  // LuaJIT doesn't say
#endif
    // The end of a function that a tail call replaces isn't reported.
    if (may_be_tail && running[slot].place == place && running[slot].id)
        everycall_frame_leave(running[slot].id);
    running[slot].place = place;
    running[slot].id = 0;
    if (ar->what[0] != 'C') {
        if (is_return)
            everycall_frame_leave(id_of(lua, ar));
        else
            enter(running[slot].id = id_of(lua, ar));
    } else if (is_return) {
        lua_getinfo(lua, "f", ar);
        if (lua_tocfunction(lua, -1) == yields)
            enter_again(lua, 1);
        lua_pop(lua, 1);
    }
}

EVERYCALL_EXCLUDE static void hook_lua(lua_State *lua) {
    lua_getglobal(lua, "coroutine");
    lua_getfield(lua, -1, "yield");
    yields = lua_tocfunction(lua, -1);
    lua_pop(lua, 2);
    lua_sethook(lua, hook, LUA_MASKCALL | LUA_MASKRET, 0);
}
// It ends here.

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    lua_pushinteger(lua, strtol(argv[2], NULL, 10));
    lua_setglobal(lua, "N");
    hook_lua(lua);
    int status = luaL_dofile(lua, argv[1]);
    if (status) fprintf(stderr, "lua: %s\n", lua_tostring(lua, -1));
    lua_sethook(lua, NULL, 0, 0);
    for (int i = 0; i < SLOTS; i++)
        if (functions[i].source)
            printf("called %u %s\n", functions[i].calls, functions[i].name);
    lua_close(lua);
    return status;
}
