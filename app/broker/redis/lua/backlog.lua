-- queue -> interactive batch weight
local base = queue_key(ARGV[1])
return {
  redis.call('ZCOUNT', base .. ':waiting', '-inf', '(' .. integer(BATCH_PLACE)),
  redis.call('ZCOUNT', base .. ':waiting', integer(BATCH_PLACE), '+inf'),
  number(redis.call('HGET', base, 'weight')),
}
