int in_c(int number);

__attribute__((noinline)) int below_in_c(int number) { return number + 1; }

int in_c(int number) { return below_in_c(number) * 2; }
