//! Does the reader of `#BB_LUA` lines inside of Slurm say what its table of cases says?

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::program::{stderr, without};

/// Runs the hooks' reader over the table, as Slurm loads it.
const CHECK: &str = r##"
slurm = { SUCCESS = 0, ERROR = -1, tanada_test = {} }
local function read(name)
  local file = assert(io.open(name))
  local text = file:read("*a")
  file:close()
  return text
end
local hooks = read("burst_buffer.lua"):gsub("@POOL@", "tanada")
assert((loadstring or load)(hooks))()
local cases = read("directives.cases"):gsub("\n%-%-%- ", "\1")
local count = 0
for case in cases:gmatch("\1([^\1]*)") do
  local expected, script = case:match("^([^\n]*)\n(.*)$")
  local promised, why = slurm.tanada_test.read_script(script)
  local said = why
  if promised then
    said = promised == 0 and "nothing" or string.format("%.0f bytes per second", promised)
  end
  if said ~= expected then
    error("expected: " .. expected .. "\nsaid: " .. said .. "\n" .. script)
  end
  count = count + 1
end
print(count)
"##;

#[test]
fn the_hooks_read_every_case_of_the_table_as_it_says() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/slurm");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("check.lua"), CHECK).unwrap();
    // Slurm may be built with any of them; Debian's is with 5.1.
    let mut tried = 0;
    for lua in ["lua5.1", "lua5.3", "lua5.4", "luajit"] {
        let mut command = Command::new(lua);
        let check = dir.path().join("check.lua");
        let Ok(done) = command.arg(check).current_dir(&packaging).output() else {
            continue;
        };
        assert!(done.status.success(), "{lua}: {}", stderr(&done));
        let count: usize = String::from_utf8_lossy(&done.stdout)
            .trim()
            .parse()
            .unwrap();
        assert!(count > 30, "{lua}: {count}");
        tried += 1;
    }
    if tried == 0 {
        without("lua5.4");
    }
}
