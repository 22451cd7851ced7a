package process

// SeeToAdopted looks for adopted processes now.
var SeeToAdopted = seeToAdopted
