/* The mean of two numbers; in one version of the library it is wrong. */
double mean(double a, double b) { return (a + b) / 2 + WRONG; }
