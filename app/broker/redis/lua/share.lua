-- id token change result_ttl_ms result_bytes_max -> whether the job exists
-- `change` is 1 to subscribe, -1 to unsubscribe.
local id, token, change = ARGV[1], ARGV[2], number(ARGV[3])
local limits = {ttl = number(ARGV[4]), bytes = number(ARGV[5])}
local field = redis.call('HMGET', job_key(id), 'state', 'shares', 'detached')
if not field[1] then return 0 end
if change < 0 and number(field[2]) <= 0 then return 1 end
if not first_time(token) then return 1 end
local subscribers = redis.call('HINCRBY', job_key(id), 'shares', change)
if is_over(field[1]) and field[3] ~= '1' then
  local ends = number(redis.call('ZSCORE', 'abs:finished', id))
  set_ttl(id, subscribers == 0 and math.max(1, ends - now_ms()) or nil)
elseif subscribers == 0 and field[3] ~= '1' then
  cancel(id, limits)
end
if subscribers == 0 then forget_old(limits.bytes) end
return 1
