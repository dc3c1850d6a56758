export default temml;
