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
F void hosts(void) {
    char local[SIZE] __attribute__((aligned(16)));
    room = local;
    switch_stack(&hosting, fresh_stack(map_stack(SIZE), SIZE, visits, 0));
    HERE;
}
UNTRACED static void hosts_farther_down(void) {
    char frame[1024];
    __asm__ volatile("" : : "r"(frame) : "memory");
    hosts();
    HERE;
}
F void* begins(void* is_second) {
    if (is_second) {
        hosts_farther_down();
        down(100);
    } else {
        hosts();
    }
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
