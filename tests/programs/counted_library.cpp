// Loaded again and again by counted.cpp.
extern "C" __attribute__((noinline)) void library_leaf(void (*tell)(int))
{
    tell(1);
    __asm__ volatile("");
}
extern "C" void in_library(void (*tell)(int))
{
    tell(0);
    for (int i = 0; i < 5; i++)
        library_leaf(tell);
    __asm__ volatile("");
}
