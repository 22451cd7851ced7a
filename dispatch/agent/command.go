package agent

// configureCommand knows of its command nothing but what the user says.
func configureCommand(p Profile, t Task) (configuration, error) {
	if !p.mentions("{mcp_config}") {
		return configuration{}, nil
	}
	file, err := t.writeServers()
	return configuration{file: file}, err
}
