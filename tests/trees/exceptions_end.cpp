// Exceptions that nobody catches, and those that may not leave a function: the trace ends where the program does.
//
// gcc ends the program from where the second exception is thrown, unless a frame in between cleans up, as each of finstrument does; clang
// catches such exceptions first.
//
// run: uncaught
// ends: signal 6
//| main~
//|   leaf()
//|   outer()~
//|     throws()~
//|       *throw std::runtime_error
//|       on_terminate()~
//|         leaf()
// run: noexcept
// ends: signal 6
//| main~
//|   leaf()
//|   promises()~
//gcc-nops|     throws()~
//gcc-untouched|     throws()~
//gcc-fentry|     throws()~
//gcc-finstrument|     throws()!
//clang|     throws()!
//|       *throw std::runtime_error
//gcc-nops|       on_terminate()~
//gcc-untouched|       on_terminate()~
//gcc-nops|         leaf()
//gcc-untouched|         leaf()
//gcc-fentry|       on_terminate()~
//gcc-fentry|         leaf()
//gcc-finstrument|     on_terminate()~
//gcc-finstrument|       leaf()
//clang|     *catch std::runtime_error
//clang|     on_terminate()~
//clang|       leaf()
// run: destructor
// ends: signal 6
//| main~
//|   leaf()
//|   destroys()~
//|     throws()!
//|       *throw std::runtime_error
//gcc-nops|     Bad::~Bad()~
//gcc-untouched|     Bad::~Bad()~
//gcc-nops|       throws()~
//gcc-untouched|       throws()~
//gcc-nops|         *throw std::runtime_error
//gcc-untouched|         *throw std::runtime_error
//gcc-nops|         on_terminate()~
//gcc-untouched|         on_terminate()~
//gcc-nops|           leaf()
//gcc-untouched|           leaf()
//gcc-fentry|     Bad::~Bad()~
//gcc-fentry|       throws()~
//gcc-fentry|         *throw std::runtime_error
//gcc-fentry|         on_terminate()~
//gcc-fentry|           leaf()
//gcc-finstrument|     Bad::~Bad()!
//gcc-finstrument|       throws()!
//gcc-finstrument|         *throw std::runtime_error
//gcc-finstrument|     on_terminate()~
//gcc-finstrument|       leaf()
//clang|     Bad::~Bad()!
//clang|       throws()!
//clang|         *throw std::runtime_error
//clang|     *catch std::runtime_error
//clang|     on_terminate()~
//clang|       leaf()
// run: exit
// ends: status 3
//| main~
//|   leaf()
//|   throws()!
//|     *throw std::runtime_error
//|   *catch std::runtime_error
//|   leaves()~
//|     at_exit()
//|       leaf()
#include "tree.h"
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

static volatile int zero;

F void leaf() { HERE; }
F void throws() {
    if (zero == 0) throw std::runtime_error("thrown");
    HERE;
}
F void outer() {
    throws();
    HERE;
}
F void promises() noexcept {
    throws();
    HERE;
}
struct Bad {
    F ~Bad() noexcept(false) {
        throws();
        HERE;
    }
};
F void destroys() {
    Bad bad;
    throws();
    HERE;
}
F void on_terminate() {
    leaf();
    std::abort();
}
F void at_exit() {
    leaf();
    HERE;
}
F void leaves() {
    std::exit(3);
    HERE;
}
int main(int, char** arguments) {
    std::set_terminate(on_terminate);
    leaf();
    if (!std::strcmp(arguments[1], "uncaught")) outer();
    if (!std::strcmp(arguments[1], "noexcept")) promises();
    if (!std::strcmp(arguments[1], "destructor")) {
        try {
            destroys();
        } catch (int) {
        } catch (...) {
        }
    }
    if (!std::strcmp(arguments[1], "exit")) {
        std::atexit(at_exit);
        try {
            throws();
        } catch (...) {
            leaves();
        }
    }
}
