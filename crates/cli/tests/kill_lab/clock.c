/* Gives the process that preloads it a clock of another rate (CLOCK_RATE, as 1.5):
 * everybody in it who asks the kernel's shared page (vDSO) for the time is sent to
 * `clock_at_rate` by a jump written over the page's own function. So programs
 * that do not go through the C library are deceived, too. x86-64. */
#define _GNU_SOURCE
#include <elf.h>
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
static double rate = 1;
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
