-- id token queue key body owner digest kind priority weight after detached remember_ms ticket jobs_max weight_max
--   result_bytes_max (pool cap limit)...
-- -> 'new' id | 'known' id | 'full' limit | 'reused' ''
local id, token, queue, key, body, owner, digest, kind, priority = unpack(ARGV, 1, 9)
local weight, after, detached, remember, ticket = unpack(ARGV, 10, 14)
local POOL_MS = 3600000 -- longer than any job that is in one
local jobs_max, weight_max = number(ARGV[15]), number(ARGV[16])

if redis.call('EXISTS', job_key(id)) == 1 then return {'new', id} end -- asked again by one who saw no reply
forget_old(number(ARGV[17]))
local known = redis.call('GET', 'abs:key:' .. key)
local digest_known = known and redis.call('HGET', job_key(known), 'digest')
if digest_known then
  if digest_known ~= digest then return {'reused', ''} end
  if first_time(token) then
    if detached == '1' then
      redis.call('HSET', job_key(known), 'detached', '1')
    else
      redis.call('HINCRBY', job_key(known), 'shares', 1)
    end
    local longer = math.max(number(redis.call('HGET', job_key(known), 'remember')), number(remember))
    redis.call('HSET', job_key(known), 'remember', whole(longer))
    if is_over(redis.call('HGET', job_key(known), 'state')) then set_ttl(known, nil) end
  end
  return {'known', known}
end

local base = queue_key(queue)
if redis.call('ZCARD', base .. ':waiting') + redis.call('SCARD', base .. ':outside') >= jobs_max then
  return {'full', 'queue_jobs_max'}
end
local sums = redis.call('HMGET', base, 'weight', 'outside_weight')
local sum = number(sums[1]) + number(sums[2])
if number(weight) > 0 and sum > 0 and sum + number(weight) > weight_max then return {'full', 'queue_weight_max'} end

local pools = {}
for place = 18, #ARGV, 3 do
  local pool = 'abs:pool:' .. ARGV[place]
  for _, other in ipairs(redis.call('SMEMBERS', pool)) do
    local state = redis.call('HGET', job_key(other), 'state')
    if not state or is_over(state) then redis.call('SREM', pool, other) end
  end
  if redis.call('SCARD', pool) >= number(ARGV[place + 1]) then return {'full', ARGV[place + 2]} end
  table.insert(pools, pool)
end
for _, pool in ipairs(pools) do
  redis.call('SADD', pool, id)
  redis.call('PEXPIRE', pool, POOL_MS)
end

redis.call('SET', 'abs:key:' .. key, id)
redis.call('HSET', job_key(id), 'queue', queue, 'key', key, 'body', body, 'owner', owner, 'digest', digest,
  'kind', kind, 'priority', priority, 'weight', weight, 'detached', detached, 'remember', remember, 'ticket', ticket,
  'submitted', whole(now_ms()), 'state', 'outside', 'attempt', '0', 'fence', '0', 'bytes', '0',
  'shares', detached == '1' and '0' or '1')
local first = after ~= '' and redis.call('HGET', job_key(after), 'state')
if first and not is_over(first) then
  redis.call('SADD', job_key(after) .. ':followers', id)
  redis.call('SADD', base .. ':outside', id)
  redis.call('HINCRBY', base, 'outside_weight', weight)
else
  enqueue(id)
end
return {'new', id}
