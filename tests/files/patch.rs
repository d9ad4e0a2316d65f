//! Patches of several files, by both real programs and as git makes them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use futures::future::join_all;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use support::{Answer, World};

use crate::desk::{Desk, code};

async fn patch(desk: &Desk, text: &str) -> Answer {
    desk.call("apply_patch", json!({ "patch": text })).await
}

/// A section that changes the one line `old` of `path`.
fn change(path: &str, old: &str, new: &str) -> String {
    format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n")
}

fn create(path: &str, line: &str) -> String {
    format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{line}\n")
}

fn names(desk: &Desk) -> Vec<String> {
    let entries = fs::read_dir(desk.at(".")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_changes_makes_removes_and_renames_files_and_says_so() {
    let desk = Desk::new().await;
    desk.run("seq 10 > m; echo bye > gone; printf 'one\\ntwo\\n' > from; chmod 755 from").await;
    let text = "Here is the patch:\n```diff\n--- a/m\n+++ b/m\n@@ -3,9 +3,9 @@\n 5\n-6\n+six\n+6.5\n 7\n\
                --- /dev/null\n+++ b/d/n\n@@ -0,0 +1 @@\n+new\n\
                --- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n\
                diff --git a/from b/to\nrename from from\nrename to to\n--- a/from\n+++ b/to\n@@\n one\n-two\n+TWO\n```\n";
    let answer = patch(&desk, text).await;
    let said = answer.text();
    let files = answer.expect()["files"].clone();
    let at = |path: &str| format!("{}/{path}", desk.at("").to_str().unwrap().trim_end_matches('/'));
    let sum: String = Sha256::digest("one\nTWO\n").iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(said.starts_with("4 files changed · +4 −3 lines\n"), "{said}");
    for line in [
        format!("modified {} · +2 −1 lines · 27 bytes · sha256 ", at("m")),
        format!("created {} · +1 −0 lines · 4 bytes", at("d/n")),
        format!("deleted {} · +0 −1 lines\n", at("gone")),
        format!("renamed {} → {} · +1 −1 lines · 8 bytes · sha256 {sum}\n", at("from"), at("to")),
    ] {
        assert!(said.contains(&line), "{line}\n{said}");
    }
    assert!(said.contains(" · hunk 1 found 2 lines down\n"), "{said}");
    let changes: Vec<&str> =
        files.as_array().unwrap().iter().map(|file| file["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["modified", "created", "deleted", "renamed"]);
    assert_eq!(
        (&files[0]["moved_hunks"], &files[3]["sha256"]),
        (&json!([{ "hunk": 1, "lines": 2 }]), &json!(sum))
    );
    assert_eq!((desk.bytes("to"), desk.bytes("d/n")), (b"one\nTWO\n".to_vec(), b"new\n".to_vec()));
    assert_eq!(desk.bytes("m"), b"1\n2\n3\n4\n5\nsix\n6.5\n7\n8\n9\n10\n");
    assert_eq!(names(&desk), ["d", "m", "to"]);
    assert_eq!(fs::metadata(desk.at("to")).unwrap().permissions().mode() & 0o777, 0o755);
    desk.run("echo job >> d/n; echo job >> to").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_06_where_the_last_file_does_not_fit_no_file_is_changed() {
    let desk = Desk::new().await;
    desk.run("echo 1 > a; printf 'def f():\\n    x = 1\\n' > b; printf 'x\\ny\\nx\\n' > c").await;
    let before = desk.run("stat -c '%n %i %y' *").await;
    let first = change("a", "1", "2") + &create("n/n", "n");
    for (last, refusal, sentence) in [
        (
            "--- a/b\n+++ b/b\n@@ -2 +2 @@\n-    x  =  1\n+    x = 2\n",
            "PATCH_MISMATCH",
            "b: hunk 1 (line 12 of the patch) not found; nearest is line 2: \"    x = 1\" — white space within",
        ),
        ("--- a/c\n+++ b/c\n@@\n-x\n+z\n", "PATCH_MISMATCH", "matches at lines 1, 3"),
        (
            "--- a/c\n+++ b/c\n@@ -1 +1 @@\n-x\n z\n?\n",
            "PATCH_INVALID",
            "line 15 of the patch: expected a line of",
        ),
        (
            "diff --git a/p.png b/p.png\nBinary files a/p.png and b/p.png differ\n",
            "PATCH_INVALID",
            "p.png is binary",
        ),
        ("--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+n\n", "PATH_EXISTS", "c: exists already"),
        ("--- a/absent\n+++ b/absent\n@@ -1 +1 @@\n-x\n+z\n", "PATH_NOT_FOUND", "absent"),
    ] {
        let error = patch(&desk, &(first.clone() + last)).await.expect_error();
        assert_eq!(error["code"], json!(refusal), "{error}");
        assert!(error["message"].as_str().unwrap().contains(sentence), "{error}");
    }
    assert_eq!(code(patch(&desk, " ").await), "PATCH_INVALID");
    assert_eq!(code(patch(&desk, &change("a", "1", "1")).await), "PATCH_INVALID");
    assert_eq!(desk.run("stat -c '%n %i %y' *").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_01_02_03_10_12_13_28_line_ends_odd_bytes_modes_links_and_names_stay() {
    let desk = Desk::new().await;
    desk.put("crlf", b"a\r\nb\r\nc\r\n").await;
    desk.put("mark", b"\xef\xbb\xbfx=1\r\n").await;
    desk.put("latin", b"const x = 1;\n// caf\xe9 note\n").await;
    desk.run("echo old > run.sh; chmod 755 run.sh; ln -s run.sh link; echo 1 > 'café \"q\".txt'; echo 1 > $'bad\\xff'")
        .await;
    let text = [
        "--- a/crlf\n+++ b/crlf\n@@ -1,3 +1,4 @@\n a\n-b\n+B1\n+B2\n c\n".to_owned(),
        change("mark", "x=1", "x=2"),
        change("latin", "const x = 1;", "const x = 2;"),
        change("link", "old", "new"),
        "--- \"a/caf\\303\\251 \\\"q\\\".txt\"\n+++ \"b/caf\\303\\251 \\\"q\\\".txt\"\n@@ -1 +1 @@\n-1\n+2\n"
            .to_owned(),
        "--- \"a/bad\\377\"\n+++ \"b/bad\\377\"\n@@ -1 +1 @@\n-1\n+2\n".to_owned(),
    ];
    let said = patch(&desk, &text.concat()).await.text();
    assert!(said.contains("6 files changed") && said.contains("bad\\xff · +1"), "{said}");
    assert_eq!(desk.bytes("crlf"), b"a\r\nB1\r\nB2\r\nc\r\n");
    assert_eq!(desk.bytes("mark"), b"\xef\xbb\xbfx=2\r\n");
    assert_eq!(desk.bytes("latin"), b"const x = 2;\n// caf\xe9 note\n");
    assert_eq!(desk.bytes("run.sh"), b"new\n");
    assert_eq!(desk.bytes("café \"q\".txt"), b"2\n");
    assert_eq!(desk.run("cat $'bad\\xff'; stat -c %a run.sh; readlink link").await, "2\n755\nrun.sh\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_19_21_22_a_patch_reaches_nothing_outside_and_nothing_odd() {
    let desk = Desk::new().await;
    let secret = desk.world.root().join("secret");
    fs::write(&secret, "1\n").unwrap();
    desk.run("ln -s /etc/passwd leak; ln -s / root; mkfifo pipe; mkdir dir; echo 1 > plain").await;
    let secret = secret.to_str().unwrap();
    for path in ["../../../secret", "leak", "root/etc/passwd", "root/tmp/x", secret, "/etc/absent"] {
        for text in [
            change(path, "1", "2"),
            create(path, "1"),
            format!("--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"),
            format!("diff --git a/plain b/x\nrename from plain\nrename to {path}\n"),
            format!("diff --git a/x b/x\ncopy from {path}\ncopy to x\n"),
        ] {
            // Only there an absolute name has no prefix.
            let text = text.replace("a//", "/").replace("b//", "/");
            let error = patch(&desk, &text).await.expect_error();
            assert_eq!(error["code"], json!("PATH_OUTSIDE_WORKSPACE"), "{text}{error}");
        }
    }
    assert_eq!(code(patch(&desk, &change("pipe", "1", "2")).await), "NOT_A_REGULAR_FILE");
    assert_eq!(code(patch(&desk, &change("dir", "1", "2")).await), "IS_A_DIRECTORY");
    assert_eq!(code(patch(&desk, &create("plain/x", "1")).await), "NOT_A_DIRECTORY");
    assert_eq!((fs::read(secret).unwrap(), desk.bytes("plain")), (b"1\n".to_vec(), b"1\n".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_16_20_patches_of_one_file_at_once_all_land() {
    let mut desk = Desk::new().await;
    let second = desk.world.start_gateway().await;
    let clients = [desk.client.clone(), desk.world.client_of(second)];
    desk.run("seq -f L%g 100 | tee f > g; mkdir d; ln -s f soft; ln f hard").await;
    let names = ["f", "./d/../f", "soft", "hard"];
    let patches = (1..=20).map(|number| {
        let line = number * 5;
        let hunk =
            |path: &str| format!("--- a/{path}\n+++ b/{path}\n@@ -{line} +{line} @@\n-L{line}\n+X{line}\n");
        let mut sections = [hunk(names[number % 4]), hunk("g")];
        sections.rotate_left(number % 2);
        let call = json!({ "workspace_id": desk.id, "patch": sections.concat() });
        clients[number / 4 % 2].call("apply_patch", call)
    });
    for answer in join_all(patches).await {
        answer.expect();
    }
    let expected: String =
        (1..=100).map(|number| format!("{}{number}\n", if number % 5 == 0 { 'X' } else { 'L' })).collect();
    for name in ["f", "soft", "hard", "g"] {
        assert_eq!(String::from_utf8(desk.bytes(name)).unwrap(), expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_15_a_full_disk_leaves_all_files_as_they_were() {
    let world = World::builder().executor("RUNLET_FREE_DISK_BYTES", "0").start().await;
    let desk = Desk::in_world(world).await;
    fs::create_dir(desk.at("small")).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m,mode=777", "none"])
        .arg(desk.at("small"))
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return;
    }
    desk.run("cd small; echo 1 > a; echo 2 > b; echo 4 > d").await;
    let text = [
        change("small/a", "1", "one"),
        create("small/new/n", "n"),
        "--- a/small/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-4\n".to_owned(),
        change("small/b", "2", &"x".repeat(2 << 20)),
    ];
    let error = patch(&desk, &text.concat()).await.expect_error();
    let left = desk.run("cd small; cat a b d; ls -A").await;
    patch(&desk, &change("small/a", "1", "still works")).await.expect();
    assert!(Command::new("umount").arg(desk.at("small")).status().unwrap().success());
    assert_eq!(error["code"], json!("NO_SPACE"), "{error}");
    assert!(error["message"].as_str().unwrap().ends_with("nothing was changed"), "{error}");
    assert_eq!(left, "1\n2\n4\na\nb\nd\n");
}

/// Makes a repository in the home whose 201 commits differ by random edits, and their differences as git writes them.
const HISTORY: &str = r#"
import os, random, subprocess
random.seed(7)
os.makedirs(os.path.expanduser('~/diffs'))
os.makedirs(os.path.expanduser('~/tree'))
os.chdir(os.path.expanduser('~/tree'))
def git(*a):
    return subprocess.run(['git', '-c', 'user.name=t', '-c', 'user.email=t@t', '-c', 'core.autocrlf=false', *a],
                          check=True, capture_output=True).stdout
git('init', '-q')
git('config', 'core.fileMode', 'true')
words = ['alpha', 'beta', '\tgamma', '', '', '-- dash', '++ plus', '@@ -1 +1 @@', '}', '}', 'é€', '\\ back', 'diff --git a/x b/x', ' ']
odd = ['café', 'a b', 'tab\tx', 'q"q', 'back\\x', 'n\nl', '-rf', 'UPPER', 'upper', '\x1b[31m', 'trailing ']
def line():
    return random.choice(words) if random.random() < .5 else '%s %d' % (random.choice(words), random.randrange(10**6))
def text():
    end = random.choice(['\n', '\n', '\r\n'])
    lines = [line() for _ in range(random.randrange(60))]
    return ''.join(l + end for l in lines) + (random.choice(['', '', 'no end']))
files = {}
def path():
    while True:
        name = random.choice(odd) if random.random() < .4 else 'f%d' % random.randrange(100)
        full = ''.join('d%d/' % random.randrange(3) for _ in range(random.randrange(3))) + name
        if full not in files:
            return full
def put(p, t):
    if os.path.dirname(p):
        os.makedirs(os.path.dirname(p), exist_ok=True)
    with open(p, 'w', newline='') as f:
        f.write(t)
    files[p] = t
def edited(t):
    lines = t.splitlines(keepends=True)
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(lines) + 1)
        what = random.random()
        end = '\r\n' if t.count('\r\n') * 2 > t.count('\n') else '\n'
        new = [line() + end for _ in range(random.randrange(1, 4))]
        if at == len(lines) and lines and not lines[-1].endswith('\n'):
            at = 0
        if what < .4: lines[at:at] = new
        elif what < .7: lines[at:at + random.randrange(1, 4)] = []
        else: lines[at:at + 1] = new
    t = ''.join(lines)
    if random.random() < .1: t = t.rstrip('\r\n')
    return t
for _ in range(15):
    put(path(), text())
def commit(n):
    git('add', '-A')
    git('commit', '-q', '--allow-empty', '-m', str(n))
commit(0)
kinds = dict.fromkeys(['new', 'gone', 'moved', 'copied', 'mode', 'edit'], 0)
for n in range(1, 201):
    touched = set()
    for _ in range(random.randrange(1, 6)):
        left = sorted(set(files) - touched)
        kind = random.choice(list(kinds) + ['edit', 'edit', 'moved'])
        if not left: kind = 'new'
        p = None if kind == 'new' else random.choice(left)
        kinds[kind] += 1
        if kind == 'new':
            p = path(); put(p, text())
        elif kind == 'gone':
            os.unlink(p); del files[p]
        elif kind == 'moved':
            to = path(); t = files[p]; mode = os.stat(p).st_mode
            os.unlink(p); del files[p]
            put(to, edited(t) if random.random() < .6 else t); os.chmod(to, mode); touched.add(to)
        elif kind == 'copied':
            to = path(); put(to, files[p]); touched.add(to)
            if random.random() < .5: put(p, edited(files[p]))
        elif kind == 'mode':
            os.chmod(p, os.stat(p).st_mode ^ 0o111)
        else:
            put(p, edited(files[p]))
        touched.add(p)
    commit(n)
    context = random.choice(['-U3', '-U3', '-U1', '-U8'])
    found = random.choice([['-M'], ['-M', '-C', '--find-copies-harder'], ['--no-renames']])
    with open(os.path.expanduser('~/diffs/%d' % n), 'wb') as f:
        f.write(git('diff', context, *found, 'HEAD~', 'HEAD'))
print(kinds)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_random_diffs_of_git_give_the_trees_of_git() {
    let desk = Desk::new().await;
    let script = json!({ "path": "~/history.py", "content": HISTORY });
    desk.call("write_file", script).await.expect();
    let made = json!({ "command": "python3 ~/history.py", "timeout_seconds": 300, "wait_seconds": 50 });
    let made = desk.call("run_command", made).await.expect();
    assert_eq!(made["exit_code"], json!(0), "{made}");
    println!("{}", made["output"]);
    let git = "git --git-dir ~/tree/.git --work-tree . ";
    desk.run(&format!("{git} checkout -q -f HEAD~200 -- . && {git} read-tree HEAD~200")).await;
    let mut applied = 0;
    for number in 1..=200 {
        let diff = fs::read(desk.at("../home/diffs").join(number.to_string())).unwrap();
        let diff = String::from_utf8(diff).unwrap();
        let text = diff.as_str();
        if text.is_empty() {
            continue;
        }
        let answer = patch(&desk, text).await;
        assert!(!answer.is_error(), "{number}: {}\n{text}", answer.text());
        let check = format!(
            "{git} add -A && test $({git} write-tree) = $({git} rev-parse HEAD~{}^{{tree}}) || {{ {git} diff --cached HEAD~{0}; false; }}",
            200 - number
        );
        let job = desk.client.run(&desk.id, &check).await;
        assert_eq!(
            job["exit_code"],
            json!(0),
            "{number}: {}\n{text}",
            job["output"].as_str().unwrap_or_default()
        );
        applied += 1;
    }
    assert!(applied >= 190, "{applied}");
}
