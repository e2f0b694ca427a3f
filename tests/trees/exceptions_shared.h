struct __attribute__((visibility("default"))) Shared {
    int number;
};
extern "C" void library_throws();
extern "C" void library_catches(void (*work)());
extern "C" void library_passes(void (*work)());
