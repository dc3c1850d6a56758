export default hljs;
