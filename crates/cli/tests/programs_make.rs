//! A C project of many files, built by make, on a mount.

use crate::harness::{Place, root};
use crate::mounted::{Mounts, sh};

/// Sixty files, each with a header of its own that two others include.
const GENERATE: &str = r##"mkdir -p project/src && cd project
for i in $(seq 60); do
  echo "#define V$i $i" > src/h$i.h; echo "int f$i(void);" >> src/h$i.h
  j=$((i % 60 + 1)); k=$((i / 2 + 1))
  printf '#include "h%d.h"\n#include "h%d.h"\n#include "h%d.h"\nint f%d(void) { return V%d + 0 * (V%d + V%d); }\n' \
    $i $j $k $i $i $j $k > src/f$i.c
done
{ echo '#include <stdio.h>'; for i in $(seq 60); do echo "#include \"h$i.h\""; done
  echo 'int main(void) { int s = 0;'; for i in $(seq 60); do echo "s += f$i();"; done
  echo 'printf("%d\n", s); return 0; }'; } > src/main.c
cat > Makefile <<'M'
SOURCES := $(wildcard src/*.c)
OBJECTS := $(SOURCES:src/%.c=build/%.o)
all: build/libparts.a build/sum
build/sum: build/main.o build/libparts.a
	cc -o $@ build/main.o -Lbuild -lparts
build/libparts.a: $(filter-out build/main.o,$(OBJECTS))
	rm -f $@ && ar rcs $@ $^
build/%.o: src/%.c | build
	cc -MMD -c -o $@ $< && echo $* >> build/compiled
build:
	mkdir -p $@
-include $(OBJECTS:.o=.d)
M"##;

#[test]
fn a_project_of_sixty_files_is_built_and_only_what_changed_is_built_again() {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounts = Mounts::new(&place, "make", 1);
    let at = &mounts.at[0];
    sh(at, GENERATE);
    let project = at.join("project");
    assert_eq!(sh(&project, "make -s -j2 && build/sum && wc -l < build/compiled"), "1830\n61\n");
    assert_eq!(
        sh(&project, "make -q && : > build/compiled && make -s -j2 && wc -l < build/compiled"),
        "0\n"
    );
    // h59.h: included by f59.c, f58.c and main.c.
    let again =
        "sed -i 's/V59 59/V59 1059/' src/h59.h && make -s -j2 && build/sum && sort build/compiled";
    assert_eq!(sh(&project, again), "2830\nf58\nf59\nmain\n");
}
