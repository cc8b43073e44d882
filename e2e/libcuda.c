/* Stands in for the driver's library on a machine without a device: every call says so. */
int cuInit(unsigned flags) { (void)flags; return 100; }
int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer) {
    (void)data; (void)attribute; (void)pointer;
    return 100;
}
