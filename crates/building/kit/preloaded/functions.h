// Numbers, names and types of the functions that a library wraps: of its list FUNCTIONS(F), whose
// items are F(result, name, parameters).
#pragma once

enum number {
#define F(result, name, parameters) NUMBER_##name,
    FUNCTIONS(F)
#undef F
    COUNT
};

static const char* const NAMES[COUNT] = {
#define F(result, name, parameters) #name,
    FUNCTIONS(F)
#undef F
};

#define F(result, name, parameters) typedef result type_##name parameters;
FUNCTIONS(F)
#undef F
