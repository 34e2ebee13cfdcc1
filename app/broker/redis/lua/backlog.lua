-- -> interactive batch weight
release()
return {
  redis.call('ZCOUNT', WAITING, '-inf', '(' .. integer(BATCH_PLACE)),
  redis.call('ZCOUNT', WAITING, integer(BATCH_PLACE), '+inf'),
  weight_of('waiting'),
}
