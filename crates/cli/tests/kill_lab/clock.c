/* Gives the process that preloads it a clock of another rate (CLOCK_RATE, as 1.5):
 * everybody in it who asks the kernel's shared page (vDSO) for the time is sent to
 * `clock_at_rate` by a jump written over the page's own function. So programs
 * that do not go through the C library are deceived, too. x86-64.
 *
 * Threads that wait tell the kernel, by the C library's `syscall`, until when of the
 * clock that they were shown: it is told what its own clock shows then. How long
 * something lasts that is said as such (poll, nanosleep) stays as it is. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CLOCKS = CLOCK_BOOTTIME + 1 };
static double rate;
static struct timespec start[CLOCKS];

/* The system call itself: the C library's function would jump back here. */
static long real(clockid_t clock, struct timespec *time) {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"((long)SYS_clock_gettime), "D"((long)clock), "S"(time)
                     : "rcx", "r11", "memory");
    return result;
}

static int clock_at_rate(clockid_t clock, struct timespec *time) {
    long result = real(clock, time);
    if (result || clock < 0 || clock >= CLOCKS)
        return result;
    const struct timespec *from = &start[clock];
    int64_t passed = (time->tv_sec - from->tv_sec) * 1000000000LL + time->tv_nsec - from->tv_nsec;
    int64_t shown = from->tv_nsec + (int64_t)(passed * rate);
    time->tv_sec = from->tv_sec + shown / 1000000000LL;
    time->tv_nsec = shown % 1000000000LL;
    return 0;
}

/* The moment of the kernel's clock at which ours shows `shown`. */
static struct timespec when(clockid_t clock, const struct timespec *shown) {
    const struct timespec *from = &start[clock];
    int64_t passed =
        (shown->tv_sec - from->tv_sec) * 1000000000LL + shown->tv_nsec - from->tv_nsec;
    int64_t at = from->tv_nsec + (int64_t)(passed / rate);
    if (at < 0)
        return (struct timespec){0};
    return (struct timespec){from->tv_sec + at / 1000000000LL, at % 1000000000LL};
}

/* In place of the C library's. */
long syscall(long number, ...) {
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    struct timespec until;
    if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && a[3] && rate > 0) {
        clockid_t clock = a[1] & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        until = when(clock, (const struct timespec *)a[3]);
        a[3] = (long)&until;
    }
    long result;
    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* Where the shared page has a function; null if it has none of that name. */
static unsigned char *find(uintptr_t base, const char *name) {
    const Elf64_Ehdr *header = (const void *)base;
    const Elf64_Shdr *sections = (const void *)(base + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM)
            continue;
        const Elf64_Sym *symbols = (const void *)(base + sections[i].sh_offset);
        const char *names = (const char *)(base + sections[sections[i].sh_link].sh_offset);
        for (uint64_t n = 0; n < sections[i].sh_size / sizeof *symbols; n++)
            if (!strcmp(names + symbols[n].st_name, name))
                return (unsigned char *)(base + symbols[n].st_value);
    }
    return NULL;
}

__attribute__((constructor)) static void deceive(void) {
    const char *text = getenv("CLOCK_RATE");
    uintptr_t base = getauxval(AT_SYSINFO_EHDR);
    unsigned char *at = base ? find(base, "__vdso_clock_gettime") : NULL;
    rate = text ? atof(text) : 0;
    for (clockid_t clock = 0; clock < CLOCKS; clock++)
        real(clock, &start[clock]);
    uintptr_t page = (uintptr_t)at & ~4095UL;
    if (rate <= 0 || !at || mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        fprintf(stderr, "clock.c: this process cannot be given another clock\n");
        _exit(125);
    }
    void *target = (void *)clock_at_rate;
    unsigned char jump[12] = {0x48, 0xb8, [10] = 0xff, [11] = 0xe0}; /* mov rax, target; jmp rax */
    memcpy(jump + 2, &target, sizeof target);
    memcpy(at, jump, sizeof jump);
    mprotect((void *)page, 8192, PROT_READ | PROT_EXEC);
}
