-- id fence result remember ran_ms result_ttl_ms result_bytes_max
local id = ARGV[1]
local field = redis.call('HMGET', job_key(id), 'state', 'fence', 'called_off', 'queue', 'weight')
if field[1] ~= 'running' or field[2] ~= ARGV[2] then return end
local result = ARGV[3]
if field[3] then
  result = nil
else
  record_run(field[4], field[5], number(ARGV[5]))
end
finish(id, result, {ttl = number(ARGV[6]), bytes = number(ARGV[7])}, ARGV[4] == '1')
