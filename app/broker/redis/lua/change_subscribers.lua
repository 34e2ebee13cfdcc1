-- id change token -> whether the job exists; `change` is 1 to subscribe, -1 to unsubscribe
local id, job, change = ARGV[1], load(ARGV[1]), number(ARGV[2])
if not job then return 0 end
if change < 0 and job.subscribers <= 0 or not first_time(ARGV[3]) then return 1 end
job.subscribers = job.subscribers + change
save(id, job)
if is_over(job) then
  if job.subscribers == 0 then redis.call('ZADD', EVICTABLE, integer(job.ended), id)
  else redis.call('ZREM', EVICTABLE, id) end
elseif job.subscribers == 0 and not job.detached then
  cancel(id, job)
end
if job.subscribers == 0 then forget_old() end
return 1
