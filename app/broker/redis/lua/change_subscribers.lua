-- KEYS: .., token. ARGV: id change result_ttl_ms result_bytes_max -> whether the job exists
-- `change` is 1 to subscribe, -1 to unsubscribe.
local id, job, change = ARGV[1], load(ARGV[1]), number(ARGV[2])
local limits = {ttl = number(ARGV[3]), bytes = number(ARGV[4])}
if not job then return 0 end
if change < 0 and job.subscribers <= 0 then return 1 end
if not first_time(KEYS[13]) then return 1 end
job.subscribers = job.subscribers + change
save(id, job)
if is_over(job) then
  if job.subscribers == 0 then redis.call('ZADD', EVICTABLE, integer(job.ended), id)
  else redis.call('ZREM', EVICTABLE, id) end
elseif job.subscribers == 0 and not job.detached then
  cancel(id, job, limits)
end
if job.subscribers == 0 then forget_old(limits.bytes) end
return 1
