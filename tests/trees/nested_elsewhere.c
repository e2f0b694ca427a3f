// A stack in a local variable of which a fiber tells, not the function that it lies in, in the memory of a thread's stack that had another one, which nobody
// has said to be over: when the function has returned, the memory is the thread's own again.
//
// flags: -pthread
//| main
//|   joins ×2
//| --
//| begins
//|   hosts
//| --
//| visits~
//| --
//| lodges!
//|   leaf
//| --
//| begins
//|   hosts
//|   down ↓100
//|     leaf
//| --
//| visits~
//| --
//| lodges!
//|   leaf
#include "everycall.h"
#include "switch.h"
#include <alloca.h>
#include <pthread.h>

enum { SIZE = 1 << 16 };
static void *hosting, *visiting;
static char* room;

F void leaf(void) { HERE; }
F void down(int levels) {
    char frame[400];
    __asm__ volatile("" : : "r"(frame) : "memory");
    if (levels > 1)
        down(levels - 1);
    else
        leaf();
    HERE;
}
F void lodges(void* unused) {
    (void)unused;
    void* lodging;
    leaf();
    switch_stack(&lodging, hosting);
    HERE;
}
F void visits(void* unused) {
    (void)unused;
    everycall_fiber(room, SIZE, 0);
    switch_stack(&visiting, fresh_stack(room, SIZE, lodges, 0));
    HERE;
}
// What makes the stack deeper comes behind the function's first instruction.
F void hosts(size_t more, size_t size) {
    char* above = alloca(more);
    char* local = alloca(size);
    __asm__ volatile("" : : "r"(above), "r"(local) : "memory");
    room = local;
    switch_stack(&hosting, fresh_stack(map_stack(SIZE), SIZE, visits, 0));
    HERE;
}
F void* begins(void* is_second) {
    hosts(is_second ? 1024 : 16, SIZE);
    if (is_second) down(100);
    HERE;
    return 0;
}
F void joins(void* is_second) {
    pthread_t thread;
    pthread_create(&thread, 0, begins, is_second);
    pthread_join(thread, 0);
    HERE;
}
int main(void) {
    joins(0);
    joins(&room);
    return 0;
}
