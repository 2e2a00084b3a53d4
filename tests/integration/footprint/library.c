int footprint_library(void);
int footprint_library(void) {
    return 1;
}
