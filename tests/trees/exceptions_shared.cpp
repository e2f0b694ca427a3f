// Exceptions across shared objects, both ways.
//
// library: exceptions_shared_library.cpp
//| main
//|   out_of_library()
//|     library_throws!
//|       library_inner!
//|         *throw Shared
//|     *catch Shared
//|     leaf()
//|   leaf()
//|   into_library()
//|     library_catches
//|       throws()!
//|         *throw Shared
//|       *catch Shared
//|       library_leaf
//|     leaf()
//|   leaf()
//|   through_library()
//|     library_passes!
//|       Held::Held()
//|       throws()!
//|         *throw Shared
//|       Held::~Held()
//|     *catch Shared
//|     leaf()
//|   leaf()
#include "exceptions_shared.h"
#include "tree.h"

static volatile int zero;

F void leaf() { HERE; }
F void throws() {
    if (zero == 0) throw Shared{1};
    HERE;
}
F void out_of_library() {
    try {
        library_throws();
    } catch (const Shared&) {
        leaf();
    }
    HERE;
}
F void into_library() {
    library_catches(throws);
    leaf();
    HERE;
}
F void through_library() {
    try {
        library_passes(throws);
    } catch (const Shared&) {
        leaf();
    }
    HERE;
}
int main() {
    out_of_library();
    leaf();
    into_library();
    leaf();
    through_library();
    leaf();
}
