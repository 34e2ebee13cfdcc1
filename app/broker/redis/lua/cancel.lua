-- id
local job = load(ARGV[1])
if job then cancel(ARGV[1], job) end
