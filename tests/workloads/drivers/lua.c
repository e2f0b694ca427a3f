// lua SCRIPT N: runs a Lua script with the global N set. Errors in protected calls leave C frames by longjmp.
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    lua_pushinteger(lua, atoi(argv[2]));
    lua_setglobal(lua, "N");
    int status = luaL_dofile(lua, argv[1]);
    if (status) fprintf(stderr, "lua: %s\n", lua_tostring(lua, -1));
    lua_close(lua);
    return status;
}
