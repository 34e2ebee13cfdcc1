-- id result_ttl_ms result_bytes_max
cancel(ARGV[1], {ttl = number(ARGV[2]), bytes = number(ARGV[3])})
