package agent

// configureCommand adds nothing to the user's command except the MCP
// configuration file, if the profile mentions it.
func configureCommand(p Profile, t Task) (configuration, error) {
	if !p.mentions("{mcp_config}") {
		return configuration{}, nil
	}
	file, err := t.writeServers()
	return configuration{file: file}, err
}
