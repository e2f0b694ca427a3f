// As Boost.Context has it.
#ifndef FCONTEXT_H
#define FCONTEXT_H
#include <stddef.h>
typedef void* fcontext_t;
typedef struct {
    fcontext_t from;
    void* data;
} transfer_t;
fcontext_t make_fcontext(void* top, size_t size, void (*run)(transfer_t));
transfer_t jump_fcontext(fcontext_t to, void* data);
#endif
