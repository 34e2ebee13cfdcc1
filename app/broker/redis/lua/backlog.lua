-- queue -> interactive batch weight
local base = queue_key(ARGV[1])
return {
  redis.call('ZCOUNT', base .. ':waiting', '-inf', '(' .. whole(BATCH_PLACE)),
  redis.call('ZCOUNT', base .. ':waiting', whole(BATCH_PLACE), '+inf'),
  number(redis.call('HGET', base, 'weight')),
}
