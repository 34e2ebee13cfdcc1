-- id body job (JSON) jobs_max weight_max token process -> 'new' id | 'known' id | 'reused' | 'full' limit cap retry_ms total_ms
local id, job = ARGV[1], cjson.decode(ARGV[3])
local within = job.deadline_in_s and 1000 * job.deadline_in_s
job.subscribers, job.processes, job.followers = job.detached and 0 or 1, {[ARGV[7]] = true}, {}
if redis.call('HEXISTS', JOBS, id) == 1 then return {'new', id} end -- repeated, because the reply was lost
forget_old()
release()
local existing = redis.call('HGET', BY_KEY, job.key)
local known = existing and load(existing)
if known and not (is_over(known) and known.key_ends <= now) then
  if known.digest ~= job.digest then return {'reused'} end
  if first_time(ARGV[6]) then
    known.detached, known.subscribers = known.detached or job.detached, known.subscribers + job.subscribers
    known.key_ttl_s = math.max(known.key_ttl_s, job.key_ttl_s)
    if known.subscribers > 0 then redis.call('ZREM', EVICTABLE, existing) end
    save(existing, known)
  end
  return {'known', existing}
end

local first = job.after and load(job.after)
if is_over(first) then first = nil end
local rate = pace()
local progress = math.max(rate.work + rate.credit / 2, rate.credit)
local waiting, outside = redis.call('ZCARD', WAITING), redis.call('HLEN', OUTSIDE)
local jobs, sum, running = waiting + outside, weight_of('waiting') + weight_of('outside'), running_work()

-- The time for this work in ms; nil if unknown.
local function duration_ms(work)
  if progress > 0 and rate.ms >= 1000 * WAITING_S_MIN then return work * rate.ms / progress end
end

local function rejected(limit, cap, room)
  return {'full', limit, integer(cap), integer(room or -1), integer(duration_ms(sum + jobs + running) or 0)}
end

local average = duration_ms((sum + jobs) / math.max(1, jobs)) -- of the jobs that wait
if jobs >= number(ARGV[4]) then return rejected('queue_jobs_max', ARGV[4], average) end
local excess = sum + job.weight - ARGV[5]
if job.weight > 0 and sum > 0 and excess > 0 then
  return rejected('queue_weight_max', ARGV[5], duration_ms(excess))
end

-- The jobs before this one. Jobs that wait for others count only if this one does too, because they may start late. The
-- job is admitted if at most as many jobs are before it as are running.
local batch = job.priority == 'batch'
local before = batch and waiting or redis.call('ZCOUNT', WAITING, '-inf', '(' .. integer(BATCH_PLACE))
local work = weight_of('waiting') - (batch and 0 or weight_of('batch_waiting'))
if first then
  before, work = before + outside, work + weight_of('outside') - (batch and 0 or weight_of('batch_outside'))
end
local ends = within and before > redis.call('XLEN', LEASES) and duration_ms(work + before + running + work_of(job))
if ends and ends > DEADLINE_SHARE * within then
  return {'full', '', '0', integer(ends - DEADLINE_SHARE * within), integer(ends)}
end

for _, pool in ipairs(job.pools) do
  local open = number(redis.call('HGET', POOLS, pool.name))
  if open >= pool.cap then return rejected(pool.limit, pool.cap, average) end
end
for _, pool in ipairs(job.pools) do redis.call('HINCRBY', POOLS, pool.name, 1) end
job.submitted, job.ends = now, within and job.kind ~= '' and now + within or nil
job.place = redis.call('HINCRBY', COUNTERS, 'place', 1) + (batch and BATCH_PLACE or 0)
redis.call('SADD', QUEUES, job.queue)
redis.call('HSET', BY_KEY, job.key, id)
redis.call('HSET', BODIES, id, ARGV[2])
if first then
  job.state, first.followers[job.queue] = 'outside', true
  save(job.after, first)
  redis.call('HSET', OUTSIDE, id, job.after)
  weigh(job, 1)
else
  enqueue(id, job)
end
save(id, job)
return {'new', id}
