#pragma once
extern "C" int library_work(int count);
extern "C" void library_throw(int depth);
