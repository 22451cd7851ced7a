module example.com/faults

go 1.26

require github.com/rs/zerolog v1.0.0

replace github.com/rs/zerolog => ./zerolog
