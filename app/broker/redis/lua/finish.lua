-- id fence result remember result_ttl_ms result_bytes_max
local id = ARGV[1]
local field = redis.call('HMGET', job_key(id), 'state', 'fence', 'called_off', 'queue', 'weight')
if field[1] ~= 'running' or field[2] ~= ARGV[2] then return end
local result = ARGV[3]
if field[3] then
  result = nil
else
  ran(field[4], field[5], now_ms() - number(redis.call('ZSCORE', queue_key(field[4]) .. ':running', id)))
end
finish(id, result, {ttl = number(ARGV[5]), bytes = number(ARGV[6])}, ARGV[4] == '1')
