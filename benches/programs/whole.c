// Makes a program's main what is measured: linked with --wrap=main. Never instrumented.
#include "region.h"

int __real_main(int argc, char **argv);

int __wrap_main(int argc, char **argv) {
    region_begin();
    int status = __real_main(argc, argv);
    region_end();
    return status;
}
