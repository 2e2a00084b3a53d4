// Functions with known names, a stripped and a whole copy of which symbolizer_test looks at.
int fixture_exported(int x);
__attribute__((noinline, used)) static int fixture_hidden(int x) {
    return x * 3 + fixture_exported(x);
}
int fixture_calls_hidden(int x) {
    return fixture_hidden(x) + 1;
}
int fixture_exported(int x) {
    return x - 1;
}
/* As the C++ compiler would name ingero::fixture(int). */
int _ZN6ingero7fixtureEi(int x) {
    return x - 2;
}
