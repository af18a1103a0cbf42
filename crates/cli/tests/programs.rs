//! Programs that people use, unmodified, on a real mount.

use crate::harness::{Cluster, Place, noise, root, said};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Mounted<'a> {
    _cluster: Cluster<'a>,
    at: PathBuf,
}

fn mounted<'a>(place: &'a Place, name: &str) -> Mounted<'a> {
    let at = place.path("mnt");
    let cluster = place.up(name, &["--mount", at.to_str().unwrap()]);
    Mounted { _cluster: cluster, at }
}

/// Runs a shell script in a directory; it must succeed.
#[track_caller]
fn sh(dir: &Path, script: &str) -> String {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]).current_dir(dir);
    // Tools must not read the settings of the user who runs the tests.
    command.env("HOME", dir).env("GIT_CONFIG_NOSYSTEM", "1");
    said(command).ok()
}

#[test]
fn git_clones_commits_and_finds_its_repository_sound() {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounted = mounted(&place, "git");
    sh(
        &mounted.at,
        "git init -q -b main origin && cd origin
         git config user.email t@example.org; git config user.name t
         for i in $(seq 100); do mkdir -p d$((i % 7)); seq $i $((i * 50)) > d$((i % 7))/f$i; done
         git add . && git commit -qm one
         cd .. && git clone -q origin copy && cd copy
         git config user.email t@example.org; git config user.name t
         sed -i s/1/x/ d1/f1 && git mv d2/f2 d3/moved && git commit -qam two
         git gc -q && git fsck --strict && git status --porcelain | wc -l | grep -qx 0
         cd ../origin && git fetch -q ../copy main && git merge -q FETCH_HEAD && git fsck --strict",
    );
}

#[test]
fn sqlite_keeps_its_database_in_both_journal_modes() {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounted = mounted(&place, "sqlite");
    for mode in ["delete", "wal"] {
        let out = sh(
            &mounted.at,
            &format!(
                "sqlite3 {mode}.db 'pragma journal_mode={mode};
                 create table t(a integer primary key, b text);
                 with recursive c(x) as (select 1 union all select x+1 from c where x < 3000)
                 insert into t select x, hex(randomblob(100)) from c;
                 begin; delete from t where a % 2; rollback;
                 delete from t where a > 2000; vacuum;
                 select count(*) from t; pragma integrity_check;'"
            ),
        );
        assert!(out.ends_with("2000\nok\n"), "{mode}: {out}");
    }
}

#[test]
fn a_compiler_builds_a_program_that_runs() {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounted = mounted(&place, "cc");
    let out = sh(
        &mounted.at,
        r#"for i in 1 2 3 4 5 6; do echo "int f$i(void) { return $i; }" > f$i.c; done
           { for i in 1 2 3 4 5 6; do echo "int f$i(void);"; done
             echo '#include <stdio.h>'
             echo 'int main(void) { printf("%d\n", f1()+f2()+f3()+f4()+f5()+f6()); return 0; }'
           } > main.c
           printf 'sum: main.o f1.o f2.o f3.o f4.o f5.o f6.o\n\tcc -o $@ $^\n' > Makefile
           make -s -j4 && ./sum"#,
    );
    assert_eq!(out, "21\n");
}

#[test]
fn trees_survive_tar_rsync_cp_diff_and_grep() {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounted = mounted(&place, "trees");
    let source = place.path("source");
    fs::create_dir(&source).unwrap();
    for i in 0..60u64 {
        let dir = source.join(format!("d{}", i % 5));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{i}")), noise((i * i * 97) as usize, i)).unwrap();
    }
    sh(
        &source,
        "ln -s d1/f1 link; ln d2/f2 hard; mkfifo pipe; chmod 4750 d3/f3
         chown 12:34 d0/f0; echo needle > d1/needle; : > empty; truncate -s 5M sparse
         printf x > $'odd \\n name \\xff'; setfattr -n user.mark -v yes d1/f1
         # Not of today: rsync leaves times alone that are right to the second.
         find . -exec touch -h -d '2002-03-04 05:06:07.89' {} +; touch -d 2001-02-03 d4/f4",
    );
    let at = &mounted.at;
    let shell = format!("S={}; ", source.display());
    sh(at, &(shell.clone() + "cp -a $S cp && diff -r -x pipe --no-dereference $S cp"));
    sh(
        at,
        &(shell.clone()
            + "mkdir tar && tar cf - -C $S . | tar xpf - -C tar && diff -r -x pipe --no-dereference $S tar"),
    );
    sh(at, &(shell.clone() + "rsync -aHX $S/ rsync && test -z \"$(rsync -aHXcin $S/ rsync)\""));
    let listing = |dir: &str| {
        let how = "find . ! -type d -printf '%p %M %U %G %s %T+ %n %l\\n' | sort";
        sh(Path::new(dir), how)
    };
    let want = listing(source.to_str().unwrap());
    for copy in ["cp", "rsync"] {
        assert_eq!(listing(at.join(copy).to_str().unwrap()), want, "{copy}");
    }
    assert_eq!(sh(at, "getfattr --only-values -n user.mark cp/d1/f1"), "yes");
    let found = sh(at, "find cp -type f -print0 | xargs -0 -P4 -n5 grep -l needle || true");
    assert_eq!(found.trim(), "cp/d1/needle");
}

#[test]
fn python_maps_renames_and_keeps_unlinked_files_open() {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounted = mounted(&place, "python");
    let out = sh(
        &mounted.at,
        r#"python3 - <<'E'
import mmap, os
data = os.urandom(3_000_000)
open('a', 'wb').write(data)
with open('a', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:
    assert m[:] == data
    m[1_000_000:1_000_005] = b'hello'
    m.flush()
assert open('a', 'rb').read()[1_000_000:1_000_005] == b'hello'
f = open('gone', 'w+b')
os.unlink('gone')
f.write(data); f.flush(); f.seek(0)
assert f.read() == data and os.fstat(f.fileno()).st_nlink == 0
f.close()
open('b', 'w').write('old')
os.rename('a', 'b')
assert os.path.getsize('b') == len(data) and not os.path.exists('a')
fd = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for i in range(300):
    os.write(fd, b'%4d\n' % i)
os.close(fd)
assert open('log').read() == ''.join('%4d\n' % i for i in range(300))
for i in range(1500):
    open('many%d' % i, 'w').close()
names = [n for n in os.listdir('.') if n.startswith('many')]
assert len(set(names)) == len(names) == 1500
try:
    os.mkdir('b')
except FileExistsError:
    print('fine')
E"#,
    );
    assert_eq!(out, "fine\n");
}
