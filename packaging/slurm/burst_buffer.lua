--[[
Slurm jobs with reserved throughput: what `#BB_LUA tanada` lines of a job ask for is booked before the job starts, and
given back when it is over.

  job_process   reads the lines                       in slurmctld, under its locks: no network, no process
  pools, paths  read one file, write one line         the same
  setup         notes whose the job is                in a process of its own; Slurm ends it after a time
  pre_run       books `slurm-CLUSTER-JOB`             the same; an error puts the job back into the queue
  job_teardown  ends the booking                      the same; what is not there is no error

`tanada slurm install` writes this file beside slurm.conf, with its settings, and writes it anew after an upgrade.
It runs under Lua 5.1 to 5.4 and under Slurm 22.05 and later: uid, gid and job_info, which follow from 23.02 on, are
taken and not needed. What it logs and answers has no capability in it, and neither has what `paths` writes.

`crates/tanada/src/cli/slurm_directives.rs` reads the same lines; `directives.cases` holds both to one table.
--]]

-- Settings ------------------------------------------------------------------------------------------------------------

local settings = {
  program = "@PROGRAM@",   -- tanada, with its whole path
  file = "@SETTINGS@",     -- what `tanada slurm` reads
  cluster = "@CLUSTER@",   -- ClusterName of slurm.conf
  pool = "@POOL@",         -- the pool that bookings are counted against
  pools_file = "@POOLS@",  -- written by `tanada slurm pools`
}

-- Reading lines -------------------------------------------------------------------------------------------------------

local DIRECTIVE = "#BB_LUA"
local LINE_MAX, SCOPE_MAX, TOLERATE_MAX, RATE_MAX = 1000, 200, 15, 1e15
-- A script's comment lines; what is longer is no job's head.
local HEAD_MAX = 1048576

local SETTINGS = "volume, store, stripe, scope, export, read, write, tolerate, plan, pool and capacity"

local function name(value)
  if #value <= 64 and string.find(value, "^[A-Za-z0-9][A-Za-z0-9._-]*$") then
    return value
  end
  return nil, "'" .. value .. "' is not a name: use 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"
end

local function scope(value)
  if #value <= SCOPE_MAX and string.find(value, "^[A-Za-z0-9._/-]+$") then
    return value
  end
  return nil, "'" .. value .. "' is no begin of names: use up to " .. SCOPE_MAX
    .. " letters, digits, '.', '_', '-' and '/'"
end

local RATE_UNITS = {
  B = 1, KB = 1e3, MB = 1e6, GB = 1e9, TB = 1e12,
  KIB = 1024, MIB = 1048576, GIB = 1073741824, TIB = 1099511627776,
}

-- A number with at most twelve digits before the point and three behind it, and a unit: bytes per second.
local function rate(value)
  local whole, part, unit = string.match(value, "^(%d+)(%.?%d*)(%a+)/s$")
  local factor = unit and RATE_UNITS[string.upper(unit)]
  local has_digits = whole and #whole <= 12 and (part == "" or string.find(part, "^%.%d%d?%d?$"))
  if factor and has_digits then
    local bytes = math.floor(tonumber(whole .. part) * factor)
    if bytes >= 1 and bytes <= RATE_MAX then
      return bytes
    end
  end
  return nil, "'" .. value .. "' is no rate; write a number, a unit and /s, such as 200MB/s"
end

local CAPACITY_UNITS = {
  [""] = 1, kb = 1e3, mb = 1e6, gb = 1e9, tb = 1e12,
  k = 1024, kib = 1024, m = 1048576, mib = 1048576,
  g = 1073741824, gib = 1073741824, t = 1099511627776, tib = 1099511627776,
}

-- As Slurm reads it: KB is 1000 bytes, K and KiB are 1024.
local function capacity(value)
  local number, unit = string.match(value, "^(%d+)(%a*)$")
  local factor = unit and CAPACITY_UNITS[string.lower(unit)]
  if factor and #number <= 18 then
    local bytes = tonumber(number) * factor
    if bytes >= 1 and bytes <= RATE_MAX then
      return bytes
    end
  end
  return nil, "'" .. value .. "' is no capacity; write a whole number and a unit, such as 200MB"
end

local function tolerate(value)
  if string.find(value, "^%d%d?$") and tonumber(value) <= TOLERATE_MAX then
    return tonumber(value)
  end
  return nil, "'" .. value .. "' is no number of stores from 0 to " .. TOLERATE_MAX
end

local function plan(value)
  if value == "any" or value == "spread" then
    return value
  end
  return nil, "'" .. value .. "' is no plan; write any or spread"
end

local READERS = {
  volume = name, export = name, scope = scope, read = rate, write = rate, tolerate = tolerate, plan = plan,
  capacity = capacity,
}

local function staging(key, value)
  if string.sub(value, 1, 5) == "s3://" then
    return key .. "= from and to S3 is not there yet; copy within the job"
  end
  return key .. "= is not there yet; use `tanada object` within the job"
end

-- Takes `key=value` into `wanted`; what is wrong with it, if anything is.
local function take(wanted, key, value)
  if key == "store" then
    local store, why = name(value)
    if not store then
      return why
    end
    if wanted.stores[store] then
      return "store=" .. store .. " is said twice"
    end
    wanted.stores[store] = true
    wanted.has_store = true
    return nil
  end
  if key == "stage_in" or key == "stage_out" then
    return staging(key, value)
  end
  local reader = READERS[key]
  if not reader then
    return "'" .. key .. "' is no setting; there are " .. SETTINGS
  end
  local read, why = reader(value)
  if read == nil then
    return why
  end
  if wanted[key] ~= nil then
    return key .. "= is said twice; a job has one reservation"
  end
  wanted[key] = read
  return nil
end

-- Takes one line; what is wrong with it, if anything is.
local function take_line(wanted, line)
  if #line > LINE_MAX then
    return "it has " .. #line .. " bytes, and " .. LINE_MAX .. " are the most"
  end
  if string.find(line, "%", 1, true) then
    return "it has a '%', which Slurm replaces for some hooks alone; write it without"
  end
  if string.find(line, "\t", 1, true) then
    return "it has a tab; write spaces"
  end
  if line ~= "" and string.sub(line, 1, 1) ~= " " then
    return "write a space behind " .. DIRECTIVE
  end
  local first, has_pool, has_capacity = true, false, false
  for word in string.gmatch(line, "[^ ]+") do
    if first then
      first = false
      if word ~= "tanada" then
        return "behind " .. DIRECTIVE .. " comes the word tanada, not '" .. word .. "'"
      end
    elseif word == "stripe" then
      wanted.stripe = true
    else
      local key, value = string.match(word, "^([^=]*)=(.+)$")
      if not key then
        return "'" .. word .. "' has no value; write such as volume=vm1"
      end
      local why
      if key == "pool" then
        has_pool = true
        if value ~= settings.pool then
          why = "'" .. value .. "' is not the pool " .. settings.pool
        end
      else
        has_capacity = has_capacity or key == "capacity"
        why = take(wanted, key, value)
      end
      if why then
        return why
      end
    end
  end
  if first then
    return "behind " .. DIRECTIVE .. " comes the word tanada, not ''"
  end
  if has_pool ~= has_capacity then
    return "pool= and capacity= stand together on one line"
  end
  return nil
end

-- Do all lines together make sense? The sum of the rates, or why not.
local function checked(wanted)
  local promised = (wanted.read or 0) + (wanted.write or 0)
  local targets = 0
  for _, is_there in ipairs({ wanted.volume ~= nil, wanted.has_store == true, wanted.export ~= nil }) do
    if is_there then
      targets = targets + 1
    end
  end
  if promised == 0 then
    return nil, "nothing is reserved; say read= or write="
  elseif targets ~= 1 then
    return nil, "say of what: one of volume=, store= and export="
  elseif wanted.has_store and not wanted.scope then
    return nil, "store= needs scope=, with which the names of its objects begin"
  elseif not wanted.has_store and (wanted.scope or wanted.stripe) then
    return nil, "scope= and stripe are for store= alone"
  elseif not wanted.volume and (wanted.tolerate or wanted.plan) then
    return nil, "tolerate= and plan= are for volume= alone"
  elseif wanted.capacity and wanted.capacity < promised then
    return nil, "capacity= is less than the sum of read= and write=, "
      .. string.format("%.0f", promised) .. " bytes per second"
  end
  return promised
end

-- The sum of what a script asks for in bytes per second, or nil and what is wrong; 0: it asks for nothing.
-- As Slurm does it: blank lines are skipped, and the first line that is no comment ends it.
local function read_script(script)
  local lines, continues, number = {}, false, 0
  for line in string.gmatch(script .. "\n", "(.-)\r?\n") do
    number = number + 1
    if line ~= "" then
      if string.sub(line, 1, 1) ~= "#" then
        break
      end
      if string.sub(line, 1, #DIRECTIVE) == DIRECTIVE then
        local part = string.sub(line, #DIRECTIVE + 1)
        local goes_on = string.sub(part, -1) == "\\"
        if goes_on then
          part = string.sub(part, 1, -2)
        end
        local last = lines[#lines]
        if continues and last then
          if string.sub(last.text, -1) == " " then
            part = string.gsub(part, "^ +", "")
          end
          last.text = last.text .. part
        else
          lines[#lines + 1] = { number = number, text = part }
        end
        continues = goes_on
      else
        continues = false
      end
    end
  end
  if #lines == 0 then
    return 0
  end
  local wanted = { stores = {} }
  for _, line in ipairs(lines) do
    local why = take_line(wanted, line.text)
    if why then
      return nil, "line " .. line.number .. ": " .. why
    end
  end
  return checked(wanted)
end

local function read_file(path)
  local file, why = io.open(path, "r")
  if not file then
    return nil, why
  end
  local text = file:read(HEAD_MAX)
  file:close()
  return text or ""
end

-- Calling tanada ------------------------------------------------------------------------------------------------------

local function quoted(word)
  return "'" .. string.gsub(word, "'", "'\\''") .. "'"
end

-- Runs `tanada slurm WORDS`: Slurm's answer, and what was said.
local function tanada(...)
  local command = quoted(settings.program) .. " slurm --settings " .. quoted(settings.file)
  for _, word in ipairs({ ... }) do
    command = command .. " " .. quoted(tostring(word))
  end
  -- What Lua 5.1 answers about a process has no exit status.
  local process, why = io.popen(command .. " 2>&1 </dev/null; echo \"status $?\"", "r")
  if not process then
    return slurm.ERROR, "cannot run " .. settings.program .. ": " .. tostring(why)
  end
  local said = process:read("*a") or ""
  process:close()
  local text, status = string.match(said, "^(.-)%s*status (%d+)%s*$")
  if status == "0" then
    return slurm.SUCCESS, text
  end
  return slurm.ERROR, text or said
end

local function is_number(text)
  return text ~= nil and string.find(tostring(text), "^%d+$") ~= nil
end

local function no_job(job_id)
  return slurm.ERROR, "'" .. tostring(job_id) .. "' is no job's number"
end

-- What Slurm calls ----------------------------------------------------------------------------------------------------

function slurm_bb_job_process(job_script)
  local script, why = read_file(job_script)
  if not script then
    return slurm.ERROR, "tanada: cannot read the job's script: " .. tostring(why)
  end
  local promised, mistake = read_script(script)
  if not promised then
    return slurm.ERROR, "tanada: " .. mistake
  end
  return slurm.SUCCESS
end

-- An error here would take burst buffers out of service, and jobs would go unchecked: no file is no pool.
function slurm_bb_pools()
  local pools = read_file(settings.pools_file)
  if pools and string.find(pools, "^%s*{.*}%s*$") then
    return slurm.SUCCESS, pools
  end
  return slurm.SUCCESS
end

function slurm_bb_setup(job_id, uid)
  if not (is_number(job_id) and is_number(uid)) then
    return no_job(job_id)
  end
  return tanada("setup", job_id, "--uid", uid)
end

function slurm_bb_data_in()
  return slurm.SUCCESS
end

function slurm_bb_test_data_in()
  return slurm.SUCCESS
end

function slurm_bb_real_size()
  return slurm.SUCCESS
end

-- Slurm keeps what is written here, and logs it: the name of the booking, nothing that opens anything.
function slurm_bb_paths(job_id, job_script, path_file)
  if not is_number(job_id) then
    return no_job(job_id)
  end
  local file, why = io.open(path_file, "w")
  if not file then
    return slurm.ERROR, "tanada: cannot write the job's environment: " .. tostring(why)
  end
  file:write("TANADA_RESERVATION=slurm-" .. settings.cluster .. "-" .. job_id .. "\n")
  file:close()
  return slurm.SUCCESS
end

function slurm_bb_pre_run(job_id, job_script)
  if not is_number(job_id) then
    return no_job(job_id)
  end
  return tanada("book", job_id, "--script", job_script)
end

function slurm_bb_post_run()
  return slurm.SUCCESS
end

function slurm_bb_data_out()
  return slurm.SUCCESS
end

function slurm_bb_test_data_out()
  return slurm.SUCCESS
end

function slurm_bb_job_teardown(job_id)
  if not is_number(job_id) then
    return no_job(job_id)
  end
  return tanada("release", job_id)
end

-- `scontrol show bbstat`, by any user: sums alone. From 23.02 on uid and gid come first; no argument is used.
function slurm_bb_get_status()
  local done, said = tanada("status")
  return done, said .. "\n"
end

-- For tests of this file by itself.
if slurm.tanada_test then
  slurm.tanada_test.read_script = read_script
end

return slurm.SUCCESS
