-- id fence result_ttl_ms result_bytes_max
local id, job = ARGV[1], load(ARGV[1])
if not job or job.state ~= 'running' or job.fence ~= number(ARGV[2]) then return end
if job.cancel then return finish(id, job, nil, {ttl = number(ARGV[3]), bytes = number(ARGV[4])}) end
leave(id, job)
local taken = number(redis.call('HGET', QUEUE, 'pace_work')) - (job.paced and work_of(job.weight) or 0)
redis.call('HSET', QUEUE, 'pace_work', decimal(math.max(0, taken)))
job.state, job.attempt, job.fence = 'waiting', job.attempt - 1, job.fence + 1
redis.call('ZADD', WAITING, integer(job.place), id)
weigh('weight', job.priority, job.weight)
save(id, job)
redis.call('PUBLISH', '{abs}:arrivals', job.queue)
