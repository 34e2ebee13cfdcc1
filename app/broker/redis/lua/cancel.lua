-- id
cancel(ARGV[1], load(ARGV[1]))
