-- id result_ttl_ms result_bytes_max
local job = load(ARGV[1])
if job then cancel(ARGV[1], job, {ttl = number(ARGV[2]), bytes = number(ARGV[3])}) end
