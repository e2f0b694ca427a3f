// Has arguments in registers and on the stack.
long in_c(long a, long b, long c, long d, long e, long f, long g, double x) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + (long)x;
}
